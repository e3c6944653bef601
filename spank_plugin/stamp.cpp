#include "stamp.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <torchbridge/core/outer_run.h>
#include <torchbridge/core/step_record.h>
#include <torchbridge/net/address.h>

// Raised when srun's plugin and a node's could misunderstand each other; tests build a second one.
#ifndef TORCH_ENV_PROTOCOL
#define TORCH_ENV_PROTOCOL 2
#endif

namespace torchbridge {
namespace {

const std::string kVersion = std::to_string(TORCH_ENV_PROTOCOL);
constexpr char kVariable[] = "SLURM_TORCH_ENV";
constexpr char kNoRank[] = "torch_env.so-is-not-loaded-on-this-node";
constexpr const char* kRankNames[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE"};
// In the environment of slurmstepd's process, which the program does not inherit.
constexpr char kBeenHere[] = "TORCH_ENV_BEEN_HERE";

std::string take_word(std::string_view& text) {
  const auto end = std::min(text.find(' '), text.size());
  const std::string word(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

}  // namespace

bool may_be_asked(const Lists& lists, char** environment) {
  for (; !lists.command_line && environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const auto name = variable.substr(0, variable.find('='));
    if (name == kOptionsVariable || name == kVariable) return true;
  }
  return lists.command_line.has_value();
}

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
  const auto value = environment.get(kVariable);
  if (!value) return std::nullopt;
  std::string_view rest = *value;
  Stamp stamp;
  stamp.version = take_word(rest);
  stamp.port = static_cast<int>(parse_integer(take_word(rest), 0, 65535).value_or(0));
  stamp.token = take_word(rest);
  stamp.list = rest;
  return stamp;
}

void set_stamp(const Asked& asked, const Reporter* reporter) {
  const std::string where = reporter != nullptr ? std::to_string(reporter->port()) + " " + reporter->token() : "0 -";
  setenv(kVariable, (kVersion + " " + where + " " + asked.list).c_str(), 1);
  // Those of a step around this one are not the user's.
  const bool replaces = asked.options.override_user || is_set_by_us(EnvMap::from(environ));
  for (const char* name : kRankNames) setenv(name, kNoRank, replaces ? 1 : 0);
}

void clear_stamp() {
  unsetenv(kVariable);
  unsetenv(kStepRecordVariable);
  unsetenv("TORCHBRIDGE_LISTEN_FD");  // a descriptor of that step's rank 0
}

bool has_stamp() { return getenv(kVariable) != nullptr; }

Result<std::optional<Options>> asked_options(const Lists& lists, const EnvMap& environment) {
  const auto stamp = Stamp::from(environment);
  if (!stamp) {
    auto asked = asked_by(lists, environment);
    if (!asked) return Error{asked.error().message + " (on " + host_name() + ")"};
    return *asked ? std::optional<Options>(std::move((*asked)->options)) : std::nullopt;
  }
  if (stamp->version != kVersion) {
    return Error{"the plugin on " + host_name() + " speaks version " + kVersion + " and that of srun version '" +
                 printable(stamp->version) + "': install the same torch_env.so on both"};
  }
  auto options = parse_options(stamp->list);
  if (!options) return options.error();
  return std::optional<Options>(std::move(*options));
}

ReporterAddress reporter_in(const EnvMap& environment) {
  const auto stamp = Stamp::from(environment);
  const auto host = environment.get("SLURM_LAUNCH_NODE_IPADDR");
  if (!stamp || !host) return {};
  return {std::string(*host), stamp->port, stamp->token};
}

bool is_ours(const std::string& name, const std::string& value) {
  const bool is_rank = std::find(std::begin(kRankNames), std::end(kRankNames), name) != std::end(kRankNames);
  return name == kVariable || (is_rank && value == kNoRank);
}

bool first_time_in_this_process() {
  if (getenv(kBeenHere) != nullptr) return false;
  setenv(kBeenHere, "1", 1);
  return true;
}

}  // namespace torchbridge
