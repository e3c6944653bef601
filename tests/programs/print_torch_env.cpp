// Prints torchrun's variables for each process of a Slurm step, one JSON object a line. The
// processes are read from stdin: their variables, NAME=VALUE one a line, and an empty line after
// each. TORCHBRIDGE_OPTIONS among them is the option list.
#include <iostream>
#include <string>

#include "bridge/core/endpoint.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/launchers/launchers.h"
#include "bridge/core/task_map.h"
#include "bridge/core/torch_env.h"

using namespace torchbridge;

namespace {

Result<TorchEnv> torch_env_in(const EnvMap& environment) {
  const auto options = parse_options(environment.get("TORCHBRIDGE_OPTIONS").value_or(""));
  if (!options) return options.error();
  const auto facts = read_slurm(environment);
  if (!facts) return facts.error();
  const auto map = task_map_of(*facts);
  if (!map) return map.error();
  auto master = endpoint_of(*facts, *map, *options, PortRange{});
  if (!master) return master.error();
  return torch_env_of(*facts, *map, *options, std::move(*master));
}

// Names, numbers and messages of this program hold nothing that JSON would escape.
void print(const Result<TorchEnv>& env) {
  if (!env) {
    std::cout << "{\"error\": \"" << env.error().message << "\"}\n";
    return;
  }
  const char* separator = "{";
  for (const auto& [name, value] : variables_of(*env)) {
    std::cout << separator << '"' << name << "\": \"" << value << '"';
    separator = ", ";
  }
  std::cout << "}\n";
}

}  // namespace

int main() {
  EnvMap environment;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) {
      print(torch_env_in(environment));
      environment = {};
      continue;
    }
    const auto equals = line.find('=');
    environment.set(line.substr(0, equals), line.substr(equals + 1));
  }
}
