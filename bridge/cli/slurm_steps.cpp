#include "bridge/cli/slurm_steps.h"

#include <sstream>

#include "bridge/base/env_map.h"
#include "bridge/base/hostlist.h"
#include "bridge/core/torch_env.h"
#include "bridge/host/scontrol.h"
#include "bridge/net/address.h"

namespace torchbridge {
bool is_slurm_job(const std::string& text) {
  const auto dot = text.find('.');
  const auto is_number = [](const std::string& part) {
    return parse_integer(part, 0, INT32_MAX).has_value();
  };
  return is_number(text.substr(0, dot)) && (dot == text.npos || is_number(text.substr(dot + 1)));
}

Result<std::vector<StepCoordinator>> coordinators_in(const std::string& steps, int requeues,
                                                     PortRange ephemeral) {
  std::vector<StepCoordinator> coordinators;
  std::istringstream lines(steps);
  for (std::string line; std::getline(lines, line);) {
    const std::string step = scontrol_field(line, "StepId"),
                      nodes = scontrol_field(line, "NodeList"),
                      ports = scontrol_field(line, "ResvPorts");
    const auto first = first_host(nodes);
    const auto dot = step.find('.');
    // The batch script and the shell of salloc are steps by name.
    if (!first || !is_slurm_job(step) || dot == step.npos) continue;
    LaunchFacts facts;
    facts.launcher = "slurm";
    facts.job_id = step.substr(0, dot);
    facts.step_id = step.substr(dot + 1);
    facts.restart_count = requeues;
    facts.nodes = {*first};
    constexpr int kHighestPort = 65535;
    if (const auto reserved = parse_number_list(ports, kHighestPort))
      facts.reserved_ports = *reserved;
    const auto endpoint = endpoint_of(facts, TaskMap::block({1}), {}, ephemeral);
    if (!endpoint) return endpoint.error();
    coordinators.push_back({*endpoint, run_id_of(facts)});
  }
  return coordinators;
}

Result<std::vector<StepCoordinator>> coordinators_of_job(const std::string& job) {
  const auto steps = scontrol("show step --oneliner " + job);
  if (!steps) return steps.error();
  const auto state = scontrol("show job --oneliner " + job.substr(0, job.find('.')));
  if (!state) return state.error();
  const auto requeues = parse_integer(scontrol_field(*state, "Restarts"), 0, INT32_MAX);
  return coordinators_in(*steps, static_cast<int>(requeues.value_or(0)), ephemeral_ports());
}

}  // namespace torchbridge
