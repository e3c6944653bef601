#include "bridge/cli/slurm_steps.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "bridge/base/env_map.h"
#include "bridge/base/hostlist.h"
#include "bridge/core/torch_env.h"
#include "bridge/net/address.h"

namespace torchbridge {
namespace {

// `arguments` are for a shell, and hold digits, letters, dots and dashes alone.
Result<std::string> scontrol(const std::string& arguments) {
  FILE* output = popen(("exec scontrol " + arguments + " 2>&1").c_str(), "r");
  if (output == nullptr) return Error{"cannot run scontrol"};
  std::string text;
  char buffer[4096];
  for (std::size_t size = 0; (size = fread(buffer, 1, sizeof buffer, output)) > 0;) text.append(buffer, size);
  const int status = pclose(output);
  if (status == 0) return text;
  return Error{"scontrol " + arguments + ": " + printable(text.substr(0, text.find('\n')))};
}

// The value of "NAME=value" between blanks; or empty.
std::string field(const std::string& line, const std::string& name) {
  const auto at = (" " + line).find(" " + name + "=");
  if (at == line.npos) return "";
  const std::string rest = line.substr(at + name.size() + 1);
  return rest.substr(0, rest.find(' '));
}

}  // namespace

bool is_slurm_job(const std::string& text) {
  const auto dot = text.find('.');
  const auto is_number = [](const std::string& part) { return parse_integer(part, 0, INT32_MAX).has_value(); };
  return is_number(text.substr(0, dot)) && (dot == text.npos || is_number(text.substr(dot + 1)));
}

Result<std::vector<StepCoordinator>> coordinators_in(const std::string& steps, int requeues, PortRange ephemeral) {
  std::vector<StepCoordinator> coordinators;
  std::istringstream lines(steps);
  for (std::string line; std::getline(lines, line);) {
    const std::string step = field(line, "StepId"), nodes = field(line, "NodeList"), ports = field(line, "ResvPorts");
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
    constexpr int kMostPort = 65535;
    if (const auto reserved = parse_number_list(ports, kMostPort)) facts.reserved_ports = *reserved;
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
  const auto requeues = parse_integer(field(*state, "Restarts"), 0, INT32_MAX);
  return coordinators_in(*steps, static_cast<int>(requeues.value_or(0)), ephemeral_ports());
}

}  // namespace torchbridge
