// The option list of --torch-env, TORCHBRIDGE_OPTIONS and plugstack.conf: one grammar, parsed only
// here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

// The variable that takes the same list as --torch-env. Not TORCH_ENV, which many people use for
// the folder of a virtual environment.
inline constexpr char kOptionsVariable[] = "TORCHBRIDGE_OPTIONS";
inline constexpr int kDefaultCheckS = 10;  // check=yes, and explain without check=
inline constexpr int kDefaultOnFailureS = 10;

// The source of MASTER_ADDR; `text` is the host, the suffix, the name of the interface, or the
// subnet in CIDR notation.
struct AddressRule {
  enum class Kind { kAuto, kHost, kSuffix, kInterface, kSubnet } kind = Kind::kAuto;
  std::string text;

  // Only rank 0's node has the address.
  bool depends_on_interfaces() const { return kind == Kind::kInterface || kind == Kind::kSubnet; }
  // The launcher's name of rank 0's node leads to the address, or to the node that has it.
  bool is_by_node_name() const { return kind == Kind::kAuto || depends_on_interfaces(); }

  bool operator==(const AddressRule&) const = default;
};

// Ports [low, high]; both 0: selected automatically.
struct PortRule {
  int low = 0, high = 0;
  bool automatic() const { return low == 0; }

  bool operator==(const PortRule&) const = default;
};

// The value of OMP_NUM_THREADS where the user has not set it.
struct OmpRule {
  enum class Kind { kTorchrun, kCpus, kNumber, kKeep } kind = Kind::kTorchrun;
  int number = 0;

  bool operator==(const OmpRule&) const = default;
};

// GLOO_SOCKET_IFNAME where the user has not set it: the interface towards rank 0's node, the one in
// `name`, or unset. NCCL_SOCKET_IFNAME with a `name` only.
struct InterfaceRule {
  enum class Kind { kAuto, kName, kNone } kind = Kind::kAuto;
  std::string name;

  bool operator==(const InterfaceRule&) const = default;
};

enum class RankRule { kSlurm, kBlock };
enum class GpuRule { kAuto, kAll, kVirtual, kClosest, kShare, kNone };
enum class CpuRule { kKeep, kGpu };

struct LaunchOptions {
  RankRule ranks = RankRule::kSlurm;
  AddressRule addr;
  PortRule port;
  GpuRule gpus = GpuRule::kAuto;
  CpuRule cpus = CpuRule::kKeep;
  InterfaceRule iface;
  OmpRule omp;
  bool elastic = true;  // TORCHELASTIC_*, by which programs take a torchrun for their parent
  bool override_user = false;
  bool verbose = false;
  bool explain = false;  // print the table of ranks and stop
  // Seconds that the nodes wait for each other before any program starts; 0: they do not wait;
  // nothing: explain waits for kDefaultCheckS, other starts do not wait.
  std::optional<int> check;
  // Only with srun's plugin: seconds that the step may run on after a task failed; nothing: it is
  // not ended.
  std::optional<int> on_failure = kDefaultOnFailureS;

  bool operator==(const LaunchOptions&) const = default;
};

// Applies a comma separated list such as "ranks=block,port=29500,verbose" on top of `base`: later
// entries win. An empty list changes nothing. The error contains the entry and the valid keys or
// values.
Result<LaunchOptions> parse_options(std::string_view list, const LaunchOptions& base = {});

// Two lines a key, for --help.
std::string options_help();

}  // namespace torchbridge
