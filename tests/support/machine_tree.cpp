#include "tests/support/machine_tree.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "bridge/host/read_machine.h"
#include "tests/support/paths.h"

namespace torchbridge {
namespace {

std::string or_empty(const std::string& word) { return word == "-" ? "" : word; }

void write_function(MachineTree& tree, const std::string& address, const std::string& type,
                    const std::string& vendor, const std::string& node) {
  const std::string device = "sys/bus/pci/devices/" + address;
  tree.write(device + "/class", type);
  tree.write(device + "/vendor", vendor);
  tree.write(device + "/numa_node", node);
}

// As driver 535 writes it.
std::string driver_record(const std::string& minor, const std::string& uuid,
                          const std::string& address) {
  return "Model: \t\t NVIDIA GPU\nIRQ:   \t\t 63\nGPU UUID: \t " +
         (uuid.empty() ? "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?-\?\?\?\?" : uuid) +
         "\nVideo BIOS: \t 86.02.40.00.48\nBus Type: \t PCIe\nDMA Mask: \t 0x7fffffffffff\nBus "
         "Location: \t " +
         address + (minor.empty() ? "" : "\nDevice Minor: \t " + minor) + "\nGPU Excluded:\t No";
}

void write_cache(MachineTree& tree, const std::string& level, const std::string& cpus) {
  const CpuSet sharing = *parse_cpu_list(cpus);
  for (const int cpu : sharing) {
    const std::string cache =
        "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + level;
    tree.write(cache + "/type", "Unified");
    tree.write(cache + "/level", level);
    tree.write(cache + "/shared_cpu_list", cpus);
  }
}

// Hundreds of small files: in memory where that can be, for a busy disk takes seconds.
std::string parent_folder() {
  const bool in_memory = std::filesystem::is_directory("/dev/shm") && access("/dev/shm", W_OK) == 0;
  return in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

}  // namespace

MachineTree::MachineTree() {
  std::string name = parent_folder() + "/machine-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
  root_ = name;
}

MachineTree::MachineTree(const std::string& recorded) : MachineTree() {
  const std::string path = in_source("tests/data/topologies/") + recorded + ".topo";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  for (std::string line; std::getline(file, line);) describe(line);
}

MachineTree::~MachineTree() { std::filesystem::remove_all(root_); }

void MachineTree::write(const std::string& path, const std::string& text) {
  const std::filesystem::path file = root_ + "/" + path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

void MachineTree::remove(const std::string& path) {
  std::filesystem::remove_all(root_ + "/" + path);
}

void MachineTree::describe(const std::string& line) {
  std::istringstream words(line);
  std::string kind, first, second, third, fourth, rest;
  words >> kind;
  if (kind.empty() || kind.front() == '#') return;
  if (kind == "node") {
    words >> first >> second >> std::ws;
    std::getline(words, rest);
    write("sys/devices/system/node/node" + first + "/cpulist", or_empty(second));
    write("sys/devices/system/node/node" + first + "/distance", rest);
  } else if (kind == "threads") {
    int from = 0, count = 0, stride = 0;
    words >> from >> count >> stride;
    for (int cpu = from; cpu < from + count; ++cpu) {
      const std::string other = stride == 0 ? "" : "," + std::to_string(cpu + stride);
      for (const int thread : {cpu, cpu + stride}) {
        write("sys/devices/system/cpu/cpu" + std::to_string(thread) +
                  "/topology/thread_siblings_list",
              std::to_string(cpu) + other);
      }
    }
  } else if (kind == "socket") {
    words >> first >> second;
    const CpuSet cpus = *parse_cpu_list(second);
    for (const int cpu : cpus) {
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/physical_package_id",
            first);
    }
  } else if (kind == "cache") {
    words >> first >> second;
    write_cache(*this, first, second);
  } else if (kind == "gpu") {
    words >> first >> second >> third >> fourth;
    write_function(*this, first, fourth.empty() ? "0x030200" : fourth, "0x10de", second);
    write("sys/bus/pci/devices/" + first + "/local_cpulist", or_empty(third));
  } else if (kind == "function") {
    words >> first >> second >> third >> fourth;
    write_function(*this, first, second, third, fourth);
  } else if (kind == "driver") {
    words >> first >> second >> third;
    write("proc/driver/nvidia/gpus/" + first + "/information",
          driver_record(or_empty(second), or_empty(third), first));
  } else if (kind == "device") {
    words >> first;
    write("dev/nvidia" + first, "");
  } else {
    ADD_FAILURE() << "no such line in a recorded topology: " << line;
  }
}

Topology MachineTree::topology() const {
  auto topology = read_topology(root_);
  if (!topology) {
    ADD_FAILURE() << topology.error().message;
    return {};
  }
  return std::move(*topology);
}

}  // namespace torchbridge
