#include "spank_plugin/stamp.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bridge/core/nested_launch.h"
#include "bridge/core/step_record.h"
#include "bridge/base/take_until.h"
#include "bridge/core/torch_env.h"
#include "bridge/net/address.h"

// Raised when srun's plugin and a node's could misunderstand each other; tests build a second one.
#ifndef TORCH_ENV_PROTOCOL
#define TORCH_ENV_PROTOCOL 2
#endif

namespace torchbridge {
namespace {

const std::string kVersion = std::to_string(TORCH_ENV_PROTOCOL);
constexpr const char* kRankNames[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "PET_NNODES"};

}  // namespace

Result<std::optional<Asked>> asked_by(const Lists& lists, const EnvMap& environment) {
  const std::string variable(environment.get(kOptionsVariable).value_or(""));
  if (!lists.command_line && variable.empty()) return std::optional<Asked>();
  Asked asked;
  const std::pair<const char*, std::string> sources[] = {
      {"plugstack.conf", lists.site}, {kOptionsVariable, variable}, {"--torch-env", lists.command_line.value_or("")}};
  for (const auto& [place, list] : sources) {
    auto options = parse_options(list, asked.options);
    if (!options) return Error{std::string(place) + ": " + options.error().message};
    asked.options = std::move(*options);
    if (!list.empty()) asked.list += (asked.list.empty() ? "" : ",") + list;
  }
  return std::optional<Asked>(std::move(asked));
}

std::optional<Stamp> Stamp::from(const EnvMap& environment) {
  const auto value = environment.get(kStampVariable);
  if (!value) return std::nullopt;
  std::string_view rest = *value;
  Stamp stamp;
  stamp.version = take_until(rest, ' ');
  stamp.port = static_cast<int>(parse_integer(take_until(rest, ' '), 0, 65535).value_or(0));
  stamp.token = take_until(rest, ' ');
  stamp.list = rest;
  return stamp;
}

void set_stamp(const Asked& asked, const FailureListener* reporter) {
  const std::string where = reporter != nullptr ? std::to_string(reporter->port()) + " " + reporter->token() : "0 -";
  setenv(kStampVariable, (kVersion + " " + where + " " + asked.list).c_str(), 1);
  // Those of a step around this one are not the user's.
  const bool replaces = asked.options.override_user || is_set_by_us(EnvMap::from(environ));
  for (const char* name : kRankNames) setenv(name, kNotLoaded, replaces ? 1 : 0);
}

void clear_stamp() {
  unsetenv(kStampVariable);
  unsetenv(kStepRecordVariable);
  unsetenv("TORCHBRIDGE_LISTEN_FD");  // a descriptor of that step's rank 0
}

bool has_stamp() { return getenv(kStampVariable) != nullptr; }

Result<std::optional<LaunchOptions>> asked_options(const Lists& lists, const EnvMap& environment) {
  const auto stamp = Stamp::from(environment);
  if (stamp && stamp->version != kVersion) {
    return Error{"the plugin on " + host_name() + " speaks version " + kVersion + " and that of srun version '" +
                 printable(stamp->version) + "': install the same torch_env.so on both"};
  }
  auto asked = stamp ? asked_by({.site = "", .command_line = stamp->list}, {}) : asked_by(lists, environment);
  if (!asked) return Error{asked.error().message + " (on " + host_name() + ")"};
  return *asked ? std::optional<LaunchOptions>(std::move((*asked)->options)) : std::nullopt;
}

FailureListenerAddress reporter_in(const EnvMap& environment) {
  const auto stamp = Stamp::from(environment);
  const auto host = environment.get("SLURM_LAUNCH_NODE_IPADDR");
  if (!stamp || !host) return {};
  return {std::string(*host), stamp->port, stamp->token};
}

bool is_ours(const std::string& name, const std::string& value) {
  const bool is_rank = std::find(std::begin(kRankNames), std::end(kRankNames), name) != std::end(kRankNames);
  return name == kStampVariable || (is_rank && value == kNotLoaded);
}

}  // namespace torchbridge
