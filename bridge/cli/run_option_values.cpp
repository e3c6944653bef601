#include "bridge/cli/run_option_values.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/base/signal_names.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launch_facts.h"

namespace torchbridge {
namespace {

constexpr int kMostPort = 65535;

Error wrong_value(std::string_view text, const std::string& reason) {
  return {"'" + printable(text) + "': " + reason};
}

// Without the quotes of a script that gives them twice: --rdzv-conf='"a=1,b=2"'.
std::string_view unquoted(std::string_view text) {
  const bool is_quoted = text.size() > 1 && (text.front() == '"' || text.front() == '\'') &&
                         text.back() == text.front();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

// Python's int() takes blanks around a number.
std::optional<std::int64_t> number_in(std::string_view text, std::int64_t low, std::int64_t high) {
  return parse_integer(trimmed(text), low, high);
}

// Not by std::from_chars, whose part for floating point would make the program need libm.
Result<double> seconds_of(const std::string& text, double low, const std::string& expected) {
  const std::string number(trimmed(text));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  const bool is_decimal =
      !number.empty() && number.find_first_not_of("0123456789.eE+-") == number.npos;
  if (!is_decimal || *end != '\0' || !std::isfinite(value) || value < low)
    return wrong_value(text, formatted("expected a number of seconds {}", expected));
  return value;
}

template <auto Member, int kLow = 1, int kHigh = INT_MAX>
Status count_stored(RendezvousConf& conf, const std::string& value) {
  const auto number = parse_whole_number(value, kLow, kHigh);
  if (!number) return number.error();
  conf.*Member = *number;
  return Ok{};
}

template <auto Member>
Status text_stored(RendezvousConf& conf, const std::string& value) {
  conf.*Member = value;
  return Ok{};
}

Status check_seconds(RendezvousConf&, const std::string& value) {
  const auto seconds = parse_seconds(value);
  return seconds ? Status(Ok{}) : Status(seconds.error());
}

Status store_is_host(RendezvousConf& conf, const std::string& value) {
  constexpr std::string_view kYes[] = {"1", "true", "t", "yes", "y"},
                             kNo[] = {"0", "false", "f", "no", "n"};
  std::string word = value;
  for (char& letter : word) letter = static_cast<char>(tolower(static_cast<unsigned char>(letter)));
  conf.is_host = std::ranges::count(kYes, word) > 0;
  if (*conf.is_host || std::ranges::count(kNo, word) > 0) return Ok{};
  return wrong_value(value, "expected true or false");
}

Status check_word(const std::string& value, const std::vector<std::string>& words) {
  if (std::ranges::count(words, value) > 0) return Ok{};
  return wrong_value(
      value, formatted("expected {} or {}{}", words[0], words[1], did_you_mean(value, words)));
}

Status store_store_type(RendezvousConf& conf, const std::string& value) {
  conf.is_file = value == "file";
  return check_word(value, {"tcp", "file"});
}

Status store_protocol(RendezvousConf& conf, const std::string& value) {
  conf.protocol = value;
  return check_word(value, {"http", "https"});
}

struct ConfKey {
  std::string_view name;
  Status (*store)(RendezvousConf& conf, const std::string& value);
};

// Of two names of one setting the later counts.
using Conf = RendezvousConf;
constexpr int kDay = 86'400, kMostAttempts = 1000;
constexpr ConfKey kConfKeys[] = {
    {"timeout", count_stored<&Conf::join_timeout>},
    {"join_timeout", count_stored<&Conf::join_timeout>},
    {"last_call_timeout", count_stored<&Conf::last_call_timeout>},
    {"close_timeout", count_stored<&Conf::close_timeout>},
    {"heartbeat_timeout", count_stored<&Conf::ignored>},
    {"keep_alive_interval", count_stored<&Conf::keep_alive_interval, 1, kDay>},
    {"keep_alive_max_attempt", count_stored<&Conf::keep_alive_max_attempt, 1, kMostAttempts>},
    {"read_timeout", count_stored<&Conf::read_timeout>},
    // Of torch 2.15; agents here have no state that all write.
    {"cas_backoff_max_seconds", check_seconds},
    {"rank", count_stored<&Conf::ignored, 0>},
    {"is_host", store_is_host},
    {"store_type", store_store_type},
    {"protocol", store_protocol},
    // torch's first etcd backend has these names for the same files.
    {"cert", text_stored<&Conf::ssl_cert>},
    {"key", text_stored<&Conf::ssl_cert_key>},
    {"cacert", text_stored<&Conf::ca_cert>},
    {"ssl_cert", text_stored<&Conf::ssl_cert>},
    {"ssl_cert_key", text_stored<&Conf::ssl_cert_key>},
    {"ca_cert", text_stored<&Conf::ca_cert>},
    {"etcd_prefix", text_stored<&Conf::etcd_prefix>},
    // Not of torch, whose etcd backends have no authentication.
    {"user", text_stored<&Conf::user>},
    {"password", text_stored<&Conf::password>},
};

std::optional<int> stream_number(std::string_view text) {
  const auto number = number_in(text, kNoStream, kStdout | kStderr);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

// A name without SIG, as "TERM", or 0.
int signal_named(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    if (!name.empty() && name == signal_abbreviation(number)) return number;
  }
  return 0;
}

std::vector<std::string> signal_names() {
  std::vector<std::string> names;
  for (int number = 1; number < NSIG; ++number) {
    if (const auto name = signal_abbreviation(number); !name.empty())
      names.push_back("SIG" + std::string(name));
  }
  return names;
}

}  // namespace

Result<NodeRange> parse_node_range(const std::string& text) {
  std::string_view rest = text;
  const auto least = number_in(take_until(rest, ':'), 1, INT_MAX);
  const auto most = text.find(':') == text.npos ? least : number_in(rest, 1, INT_MAX);
  if (!least || !most || *least > *most) {
    return wrong_value(text, "expected the number of nodes, or MIN:MAX with 1 <= MIN <= MAX");
  }
  return NodeRange{static_cast<int>(*least), static_cast<int>(*most)};
}

Result<WorkersPerNode> parse_worker_count(const std::string& text) {
  using Kind = WorkersPerNode::Kind;
  const std::vector<std::string> kWords = {"auto", "cpu", "gpu"};
  constexpr Kind kKinds[] = {Kind::kAuto, Kind::kCpu, Kind::kGpu};
  const auto word = static_cast<std::size_t>(std::ranges::find(kWords, text) - kWords.begin());
  if (word < kWords.size()) return WorkersPerNode{kKinds[word]};
  if (text == "xpu")
    return wrong_value(text, "xpu devices are not counted: give the number of workers");
  const auto count = number_in(text, 1, kMaxRanks);
  if (!count)
    return wrong_value(text, formatted("expected a number from 1, auto, cpu or gpu{}",
                                       did_you_mean(text, kWords)));
  return WorkersPerNode{Kind::kNumber, static_cast<int>(*count)};
}

Result<RdzvBackend> parse_rdzv_backend(const std::string& text) {
  return static_cast<RdzvBackend>(std::ranges::find(kRdzvBackends, text) -
                                  std::begin(kRdzvBackends));
}

Result<int> parse_whole_number(const std::string& text, int low, int high) {
  const auto number = number_in(text, low, high);
  if (number) return static_cast<int>(*number);
  return wrong_value(text, formatted("expected a whole number from {}{}", low,
                                     high == INT_MAX ? "" : formatted(" to {}", high)));
}

Result<double> parse_seconds(const std::string& text) { return seconds_of(text, 0, "from 0"); }

Result<double> parse_seconds_above_zero(const std::string& text) {
  return seconds_of(text, std::numeric_limits<double>::min(), "above 0");
}

Result<std::optional<int>> parse_port(const std::string& text) {
  const auto port = parse_whole_number(text, 0, kMostPort);
  if (!port) return port.error();
  return *port == 0 ? std::nullopt : std::optional(*port);
}

Result<RendezvousConf> parse_rdzv_conf(const std::string& text) {
  RendezvousConf conf;
  std::map<std::string, std::string> values;
  const std::string_view list = unquoted(trimmed(text));
  if (list.empty()) return conf;
  for (std::string_view rest : split_at(list, ',')) {
    const std::string key(trimmed(take_until(rest, '='))), value(trimmed(rest));
    if (key.empty() || value.empty())
      return Error{formatted("key '{}' has no value: expected KEY=VALUE,...", printable(key))};
    const auto known = std::ranges::find(kConfKeys, key, &ConfKey::name);
    const Status checked = known == std::end(kConfKeys) ? Status(Ok{}) : known->store(conf, value);
    if (!checked) return Error{key + "=" + checked.error().message};
    values[key] = value;
  }
  std::vector<std::string> names;
  for (const ConfKey& key : kConfKeys) {
    names.emplace_back(key.name);
    if (const auto given = values.find(names.back()); given != values.end())
      (void)key.store(conf, given->second);
  }
  for (const auto& [key, value] : values) {
    if (std::ranges::count(names, key) == 0)
      conf.unread.push_back("'" + printable(key) + "'" + did_you_mean(key, names));
  }
  return conf;
}

Result<StreamSelection> parse_streams(const std::string& text) {
  StreamSelection streams;
  if (const auto all = stream_number(text)) {
    streams.all = *all;
    return streams;
  }
  for (std::string_view number : split_at(text, ',')) {
    const auto local_rank = number_in(take_until(number, ':'), 0, INT_MAX);
    const auto stream = stream_number(number);
    if (!local_rank || !stream) {
      return wrong_value(
          text,
          "expected 0 (no stream), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:NUMBER,...");
    }
    streams.by_local_rank[static_cast<int>(*local_rank)] = *stream;
  }
  return streams;
}

Result<std::optional<std::set<int>>> parse_ranks(const std::string& text) {
  if (text.empty()) return std::optional<std::set<int>>();
  std::set<int> ranks;
  for (const std::string_view part : split_at(text, ',')) {
    const auto rank = number_in(part, 0, INT_MAX);
    if (!rank)
      return wrong_value(text, "expected local ranks with commas between them, as in 0,1,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return std::optional(ranks);
}

Result<std::vector<std::string>> parse_filters(const std::string& text) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escaped = text.compare(i, 2, ",,") == 0;
    if (text[i] == ',' && !is_escaped) {
      filters.emplace_back();
    } else {
      filters.back() += text[i];
      i += is_escaped ? 1 : 0;
    }
  }
  return filters;
}

Result<std::vector<int>> parse_signals(const std::string& text) {
  std::vector<int> signals;
  for (const std::string_view part : split_at(text, ',')) {
    const std::string name(trimmed(part));
    const int number = signal_named(name);
    if (number == 0)
      return wrong_value(
          name, formatted("expected names of signals{}", did_you_mean(name, signal_names())));
    if (number == SIGKILL || number == SIGSTOP)
      return wrong_value(name, "no program can handle it: leave it out");
    if (std::ranges::count(signals, number) == 0) signals.push_back(number);
  }
  return signals;
}

Result<std::vector<std::string>> parse_modules(const std::string& text) {
  std::vector<std::string> modules;
  for (const std::string_view part : split_at(text, ',')) {
    const std::string_view name = trimmed(part);
    // Also letters of other alphabets; Python checks the rest.
    const bool is_name =
        !name.empty() && name.find_first_of(" \t\n/'\"\\-") == name.npos && name.front() != '.';
    if (!is_name)
      return wrong_value(
          text, "expected names of Python modules with commas between them, as in torch,numpy");
    modules.emplace_back(name);
  }
  return modules;
}

}  // namespace torchbridge
