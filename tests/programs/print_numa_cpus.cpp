// Prints the CPUs that each worker gets by --numa-binding: print_numa_cpus ROOT CPUS, where ROOT
// has the machine's files and CPUs are those that the agent may use. A line "MODE LOCAL_RANK CPUS",
// or "MODE LOCAL_RANK error TEXT", for each mode and GPU, and for a worker more than there are
// GPUs.
#include <iostream>

#include "bridge/binding/numa_mode.h"
#include "bridge/host/read_cpu_groups.h"
#include "bridge/host/read_machine.h"

using namespace torchbridge;

namespace {

constexpr struct {
  NumaMode mode;
  const char* name;
} kModes[] = {{NumaMode::kNode, "node"},
              {NumaMode::kSocket, "socket"},
              {NumaMode::kExclusive, "exclusive"},
              {NumaMode::kCoreComplex, "core-complex"}};

Result<Machine> machine_at(const std::string& root, const std::string& allowed) {
  auto topology = read_topology(root);
  if (!topology) return topology.error();
  if (const auto read = read_cpu_groups(root, *topology); !read) return read.error();
  auto cpus = parse_cpu_list(allowed);
  if (!cpus) return cpus.error();
  return Machine{std::move(*topology), std::move(*cpus), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: print_numa_cpus ROOT CPUS\n", 2;
  const auto machine = machine_at(argv[1], argv[2]);
  if (!machine) return std::cerr << machine.error().message << "\n", 1;
  const auto gpus = machine->topology.usable_gpus();
  for (const auto& [mode, name] : kModes) {
    for (int rank = 0; rank <= static_cast<int>(gpus.size()); ++rank) {
      const auto cpus = cpus_of_worker(mode, *machine, gpus, rank);
      std::cout << name << " " << rank << " "
                << (cpus ? cpu_list_text(*cpus) : "error " + cpus.error().message) << "\n";
    }
  }
}
