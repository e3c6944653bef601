#include "bridge/core/exported_values.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/base/visible_text.h"
#include "bridge/core/user_values.h"

namespace torchbridge {
namespace {

constexpr std::size_t kMaxText = 4096;

bool is_text_or_empty(std::string_view text) {
  if (text.size() > kMaxText) return false;
  while (!text.empty()) {
    const auto character = first_character(text);
    if (!character || is_control(character->code)) return false;
    text.remove_prefix(character->size);
  }
  return true;
}
bool is_text(std::string_view text) { return !text.empty() && is_text_or_empty(text); }

bool is_count(std::string_view text) { return parse_integer(text, 0, INT32_MAX).has_value(); }
bool is_port(std::string_view text) { return parse_integer(text, 1, 65535).has_value(); }
bool is_flag(std::string_view text) { return text == "True" || text == "False"; }

// OpenMP takes one number for each level of nesting.
bool is_threads(std::string_view text) {
  constexpr int kMaxThreads = 65536;
  return std::ranges::all_of(split_at(text, ','), [](std::string_view number) {
    return parse_integer(number, 1, kMaxThreads).has_value();
  });
}

struct Expectation {
  bool (*holds)(std::string_view);
  std::string_view text;
};
constexpr Expectation kText{is_text, "1 to 4096 bytes of printable UTF-8"};
constexpr Expectation kTextOrEmpty{is_text_or_empty, "at most 4096 bytes of printable UTF-8"};
constexpr Expectation kHost{is_host_text, "a host name or an address, without a port"};
constexpr Expectation kCount{is_count, "an integer from 0 to 2147483647"};
constexpr Expectation kPort{is_port, "an integer from 1 to 65535"};
constexpr Expectation kFlag{is_flag, "True or False"};
constexpr Expectation kThreads{is_threads, "an integer from 1 to 65536"};

// The ranks and sizes are compared with what they must be: user_values.h.
constexpr struct {
  std::string_view name;
  const Expectation& expectation;
  bool read_always = false;
} kExported[] = {
    {"MASTER_ADDR", kHost},
    {"MASTER_PORT", kPort},
    {"ROLE_NAME", kText},
    {"TORCHELASTIC_RESTART_COUNT", kCount},
    {"TORCHELASTIC_MAX_RESTARTS", kCount},
    {"TORCHELASTIC_RUN_ID", kText},
    {"TORCHELASTIC_USE_AGENT_STORE", kFlag},
    {"TORCHELASTIC_ERROR_FILE", kText},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", kCount},
    {"OMP_NUM_THREADS", kThreads},
    {"GLOO_SOCKET_IFNAME", kText},
    {"NCCL_SOCKET_IFNAME", kText},
    {"PET_NNODES", kText},
    {"PET_NODE_RANK", kCount},
    {"PET_NPROC_PER_NODE", kText},
    {"PET_RDZV_ID", kText},
    {"PET_RDZV_ENDPOINT", kTextOrEmpty},
    {"PET_MASTER_ADDR", kHost},
    {"PET_MASTER_PORT", kPort},
    {"CUDA_VISIBLE_DEVICES", kTextOrEmpty, true},
    {"SLURM_CPUS_PER_TASK", kThreads, true},
};

bool is_rank_or_master(std::string_view name) {
  return is_rank_or_size(name) || name == "MASTER_ADDR" || name == "MASTER_PORT";
}

bool may_be_empty(std::string_view name) {
  const auto* exported =
      std::ranges::find_if(kExported, [&](const auto& e) { return e.name == name; });
  if (exported != std::end(kExported)) return exported->expectation.holds("");
  return !is_rank_or_size(name) && !name.starts_with("PET_");
}

}  // namespace

SetValues without_empty(const EnvMap& user, bool is_by_hand) {
  SetValues set;
  std::vector<std::string> empty;
  for (const auto& [name, value] : user) {
    if (!value.empty() || may_be_empty(name) || (is_by_hand && is_rank_or_master(name))) {
      set.environment.set(name, value);
    } else {
      empty.push_back(name);
    }
  }
  if (!empty.empty())
    set.note = formatted("{}: exported, but empty, which counts as not set", joined(empty, ", "));
  return set;
}

Status check_exported(const EnvMap& user, bool override_user) {
  for (const auto& [name, expectation, read_always] : kExported) {
    const auto value = user.get(name);
    if (!value || (override_user && !read_always) || expectation.holds(*value)) continue;
    const std::string advice = read_always ? ": unset it" : ": unset it, or give override=yes";
    return Error{
        formatted("{}='{}': expected {}{}", name, printable(*value), expectation.text, advice)};
  }
  return Ok{};
}

}  // namespace torchbridge
