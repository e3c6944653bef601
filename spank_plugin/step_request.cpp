#include "spank_plugin/step_request.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/agent_command.h"
#include "bridge/core/nested_launch.h"
#include "bridge/core/step_record.h"
#include "bridge/core/torch_env.h"
#include "bridge/net/address.h"
#include "bridge/net/random_token.h"

// Raised with each change that srun's plugin and a node's must both know; tests build a plugin with
// another version.
#ifndef TORCH_ENV_PROTOCOL
#define TORCH_ENV_PROTOCOL 6
#endif

namespace torchbridge {
namespace {

const std::string kVersion = std::to_string(TORCH_ENV_PROTOCOL);
constexpr const char* kMarkedNames[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "PET_NNODES"};

bool is_plugin_variable(const std::string& name, const std::string& value) {
  const bool is_marked =
      std::find(std::begin(kMarkedNames), std::end(kMarkedNames), name) != std::end(kMarkedNames);
  return name == kStepRequestVariable || name == kCarriedTokenVariable ||
         (is_marked && value == kNotLoaded);
}

}  // namespace

Result<std::optional<MergedOptions>> merged_options(const OptionLists& lists,
                                                    const EnvMap& environment) {
  const std::string variable(environment.get(kOptionsVariable).value_or(""));
  if (!lists.command_line && variable.empty()) return std::optional<MergedOptions>();
  MergedOptions merged;
  const std::pair<const char*, std::string> sources[] = {
      {"plugstack.conf", lists.site},
      {kOptionsVariable, variable},
      {"--torch-env", lists.command_line.value_or("")}};
  for (const auto& [source, list] : sources) {
    auto options = parse_options(list, merged.options);
    if (!options) return Error{std::string(source) + ": " + options.error().message};
    merged.options = std::move(*options);
    if (!list.empty()) merged.list += (merged.list.empty() ? "" : ",") + list;
  }
  return std::optional<MergedOptions>(std::move(merged));
}

std::optional<StepRequest> StepRequest::from(const EnvMap& environment) {
  const auto value = environment.get(kStepRequestVariable);
  if (!value) return std::nullopt;
  std::string_view rest = *value;
  StepRequest request;
  request.version = take_until(rest, ' ');
  request.port = static_cast<int>(parse_integer(take_until(rest, ' '), 0, 65535).value_or(0));
  request.secret = take_until(rest, ' ');
  if (request.secret.size() != kTokenSize) request.secret.clear();
  request.list = rest;
  return request;
}

void set_step_request(const MergedOptions& merged, const std::string& secret, int port) {
  setenv(
      kStepRequestVariable,
      formatted("{} {} {} {}", kVersion, port, secret.empty() ? "-" : secret, merged.list).c_str(),
      1);
  for (const char* name : kMarkedNames) setenv(name, kNotLoaded, merged.options.override_user);
}

void clear_outer_step() {
  unsetenv(kStepRequestVariable);
  unsetenv(kStepRecordVariable);
  if (getenv(kSetByVariable) == nullptr) return;  // allocates nothing for steps of others
  const EnvMap given = EnvMap::from(environ);
  const EnvMap own = without_outer_run(given, {.launcher = "none of the step or job to come"});
  for (const auto& [name, value] : given) {
    if (!own.has(name)) unsetenv(name.c_str());
  }
}

void carry_token() {
  const char* token = getenv(kTokenVariable);
  if (token != nullptr && *token != '\0') setenv(kCarriedTokenVariable, token, 1);
}

bool has_step_request() { return getenv(kStepRequestVariable) != nullptr; }

Result<std::optional<LaunchOptions>> requested_options(const OptionLists& lists,
                                                       const EnvMap& environment) {
  const auto request = StepRequest::from(environment);
  if (request && request->version != kVersion) {
    return Error{
        formatted("torch_env.so has protocol version {} on {} and '{}' in srun: install the same "
                  "torch_env.so on both",
                  kVersion, host_name(), printable(request->version))};
  }
  auto merged = request ? merged_options({.site = "", .command_line = request->list}, {})
                        : merged_options(lists, environment);
  if (!merged) return Error{formatted("{} (on {})", merged.error().message, host_name())};
  return *merged ? std::optional<LaunchOptions>(std::move((*merged)->options)) : std::nullopt;
}

FailureListenerAddress listener_in(const EnvMap& environment) {
  const auto request = StepRequest::from(environment);
  const auto host = environment.get("SLURM_LAUNCH_NODE_IPADDR");
  if (!request || !host || request->port == 0 || request->secret.empty()) return {};
  return {std::string(*host), request->port, report_key(request->secret)};
}

EnvMap without_plugin_variables(const EnvMap& environment) {
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    if (!is_plugin_variable(name, value)) rest.set(name, value);
  }
  const auto token = environment.get(kCarriedTokenVariable);
  if (token && rest.get(kTokenVariable).value_or("").empty())
    rest.set(kTokenVariable, std::string(*token));
  return rest;
}

}  // namespace torchbridge
