#include "bridge/core/init_method.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {
namespace {

struct Scheme {
  std::string_view name;
  InitMethod::Kind kind;
};
constexpr Scheme kSchemes[] = {
    {"env", InitMethod::Kind::kEnvironment}, {"tcp", InitMethod::Kind::kTcp},
    {"file", InitMethod::Kind::kFile},       {"slurm", InitMethod::Kind::kSlurm},
    {"mpi", InitMethod::Kind::kMpi},         {"pmix", InitMethod::Kind::kPmix}};

// "rank=0&world_size=4"; false for anything else.
bool read_query(std::string_view query, GivenRanks& ranks) {
  while (!query.empty()) {
    auto value = take_until(query, '&');
    const auto name = take_until(value, '=');
    auto* field = name == "rank" ? &ranks.rank : name == "world_size" ? &ranks.world_size : nullptr;
    const auto number = parse_integer(value, 0, kMaxRanks);
    if (field == nullptr || *field || !number) return false;
    *field = static_cast<int>(*number);
  }
  return true;
}

// "n0:29500", "[fd00::1]:29500".
bool read_endpoint(std::string_view text, Endpoint& endpoint) {
  auto parsed = parse_endpoint(std::string(text));
  if (!parsed || parsed->port == 0) return false;
  endpoint = std::move(*parsed);
  return true;
}

// The part of the URL between "://" and "?".
bool read_location(std::string_view text, InitMethod& method) {
  if (method.kind == InitMethod::Kind::kTcp) return read_endpoint(text, method.endpoint);
  if (method.kind != InitMethod::Kind::kFile) return text.empty();
  method.path = text;
  return text.size() > 1 && text.starts_with('/') && !text.ends_with('/');
}

struct NamedValue {
  std::string name;
  std::optional<int> value;
};

// Of two that differ it is not known which is right, so this is an error.
Result<std::optional<int>> agreed(const char* what, const std::vector<NamedValue>& sources) {
  const NamedValue* first = nullptr;
  for (const NamedValue& source : sources) {
    if (!source.value) continue;
    if (first != nullptr && *first->value != *source.value) {
      return Error{formatted("{} is {} in {}, but {} in {}: leave one of them out", what,
                             *first->value, first->name, *source.value, source.name)};
    }
    if (first == nullptr) first = &source;
  }
  return first == nullptr ? std::optional<int>() : first->value;
}

std::optional<int> as_int(const std::optional<std::int64_t>& number) {
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace

Result<InitMethod> parse_init_method(std::string_view url) {
  InitMethod method;
  if (url.empty()) return method;
  const Error error{
      formatted("init method '{}': expected env://, tcp://HOST:PORT, file:///PATH, slurm://, "
                "mpi:// or pmix://, with or without ?rank=R&world_size=N",
                printable(url))};
  const auto separator = url.find("://");
  const auto* scheme = std::ranges::find(kSchemes, url.substr(0, separator), &Scheme::name);
  if (separator == std::string_view::npos || scheme == std::end(kSchemes)) return error;
  method.kind = scheme->kind;
  const auto rest = url.substr(separator + 3);
  const auto question = std::min(rest.find('?'), rest.size());
  if (!read_location(rest.substr(0, question), method)) return error;
  if (question < rest.size() && !read_query(rest.substr(question + 1), method.ranks)) return error;
  return method;
}

Result<GivenRanks> agreed_ranks(const GivenRanks& arguments, const InitMethod& method,
                                const EnvMap& environment) {
  const auto rank_variable = environment.integer("RANK", 0, kMaxRanks - 1);
  if (!rank_variable) return rank_variable.error();
  const auto size_variable = environment.integer("WORLD_SIZE", 1, kMaxRanks);
  if (!size_variable) return size_variable.error();
  const auto rank = agreed("the rank", {{"the program's arguments", arguments.rank},
                                        {"the init method", method.ranks.rank},
                                        {"RANK", as_int(*rank_variable)}});
  if (!rank) return rank.error();
  const auto world_size =
      agreed("the world size", {{"the program's arguments", arguments.world_size},
                                {"the init method", method.ranks.world_size},
                                {"WORLD_SIZE", as_int(*size_variable)}});
  if (!world_size) return world_size.error();
  const bool impossible = (*world_size && **world_size < 1) ||
                          (*rank && (**rank < 0 || (*world_size && **rank >= **world_size)));
  if (impossible) {
    return Error{formatted("rank {} of {} ranks: expected 0 <= rank < number of ranks",
                           *rank ? std::to_string(**rank) : "?",
                           *world_size ? std::to_string(**world_size) : "?")};
  }
  return GivenRanks{*rank, *world_size};
}

}  // namespace torchbridge
