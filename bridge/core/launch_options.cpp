#include "bridge/core/launch_options.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/base/subnet.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMaxThreads = 65536;
constexpr int kMaxSeconds = 86400;

// Each parser puts the value into the options, or returns false for a value it does not know.
bool parse_ranks(std::string_view value, LaunchOptions& options) {
  if (value == "slurm") return options.ranks = RankRule::kSlurm, true;
  if (value == "block") return options.ranks = RankRule::kBlock, true;
  return false;
}

bool is_interface_name(std::string_view text) {
  constexpr std::size_t kMaxLength = 15;  // on Linux
  return is_host_text(text) && text.size() <= kMaxLength;
}

bool is_subnet(std::string_view text) { return static_cast<bool>(Subnet::parse(text)); }

bool parse_addr(std::string_view value, LaunchOptions& options) {
  using enum AddressRule::Kind;
  struct Form {
    std::string_view prefix;
    AddressRule::Kind kind;
    bool (*accepts)(std::string_view);
  };
  constexpr Form kForms[] = {{"suffix:", kSuffix, is_host_text},
                             {"iface:", kInterface, is_interface_name},
                             {"subnet:", kSubnet, is_subnet},
                             {"", kHost, is_host_text}};
  if (value == "auto") return options.addr = {}, true;
  const auto* form =
      std::ranges::find_if(kForms, [&](const Form& f) { return value.starts_with(f.prefix); });
  value.remove_prefix(form->prefix.size());
  options.addr = {form->kind, std::string(value)};
  return form->accepts(value);
}

bool parse_port(std::string_view value, LaunchOptions& options) {
  if (value == "auto") return options.port = {}, true;
  const auto dash = value.find('-');
  const auto low = parse_integer(value.substr(0, dash), 1, kMaxPort);
  const auto high =
      dash == std::string_view::npos ? low : parse_integer(value.substr(dash + 1), 1, kMaxPort);
  if (!low || !high || *low > *high) return false;
  options.port = {static_cast<int>(*low), static_cast<int>(*high)};
  return true;
}

bool parse_gpus(std::string_view value, LaunchOptions& options) {
  if (value == "auto") return options.gpus = GpuRule::kAuto, true;
  if (value == "all") return options.gpus = GpuRule::kAll, true;
  if (value == "virtual") return options.gpus = GpuRule::kVirtual, true;
  if (value == "closest") return options.gpus = GpuRule::kClosest, true;
  if (value == "share") return options.gpus = GpuRule::kShare, true;
  if (value == "none") return options.gpus = GpuRule::kNone, true;
  return false;
}

bool parse_cpus(std::string_view value, LaunchOptions& options) {
  if (value == "keep") return options.cpus = CpuRule::kKeep, true;
  if (value == "gpu") return options.cpus = CpuRule::kGpu, true;
  return false;
}

bool parse_iface(std::string_view value, LaunchOptions& options) {
  if (value == "auto") return options.iface = {}, true;
  if (value == "none") return options.iface = {InterfaceRule::Kind::kNone, {}}, true;
  options.iface = {InterfaceRule::Kind::kName, std::string(value)};
  return is_interface_name(value);
}

bool parse_omp(std::string_view value, LaunchOptions& options) {
  if (value == "torchrun") return options.omp = {OmpRule::Kind::kTorchrun}, true;
  if (value == "cpus") return options.omp = {OmpRule::Kind::kCpus}, true;
  if (value == "keep") return options.omp = {OmpRule::Kind::kKeep}, true;
  const auto number = parse_integer(value, 1, kMaxThreads);
  if (number) options.omp = {OmpRule::Kind::kNumber, static_cast<int>(*number)};
  return number.has_value();
}

template <bool LaunchOptions::*flag>
bool parse_flag(std::string_view value, LaunchOptions& options) {
  options.*flag = value == "yes";
  return value == "yes" || value == "no";
}
bool parse_check(std::string_view value, LaunchOptions& options) {
  const auto seconds = value == "yes"  ? kDefaultCheckS
                       : value == "no" ? 0
                                       : parse_integer(value, 1, kMaxSeconds);
  if (seconds) options.check = static_cast<int>(*seconds);
  return seconds.has_value();
}
bool parse_on_failure(std::string_view value, LaunchOptions& options) {
  if (value == "wait") return options.on_failure = std::nullopt, true;
  const auto seconds = parse_integer(value, 1, kMaxSeconds);
  if (seconds) options.on_failure = static_cast<int>(*seconds);
  return seconds.has_value();
}

struct Key {
  std::string_view name;
  std::string_view values;  // the default first
  std::string_view help;
  bool (*parse)(std::string_view, LaunchOptions&);
  bool flag = false;  // may be given without a value, which means yes
};

constexpr Key kKeys[] = {
    {"ranks", "slurm|block", "RANK is the launcher's rank, or torchrun's numbering, node by node",
     parse_ranks},
    {"addr", "auto|HOST|iface:NAME|subnet:CIDR|suffix:TEXT",
     "what MASTER_ADDR is made from; numeric where the name resolves", parse_addr},
    {"port", "auto|N|LO-HI",
     "MASTER_PORT: the step's reserved port, else derived from job, step and restart", parse_port},
    {"gpus", "auto|all|virtual|closest|share|none",
     "which GPUs a task sees; virtual is torchrun's --virtual-local-rank", parse_gpus},
    {"cpus", "keep|gpu", "where a task runs; gpu is on the cores and memory of its GPU's NUMA node",
     parse_cpus},
    {"iface", "auto|NAME|none",
     "GLOO_SOCKET_IFNAME, auto: towards rank 0; NAME: NCCL_SOCKET_IFNAME too", parse_iface},
    {"omp", "torchrun|cpus|N|keep",
     "OMP_NUM_THREADS where it is not set; torchrun is 1 with several tasks a node", parse_omp},
    {"elastic", "yes|no",
     "whether TORCHELASTIC_* are set; with no, Lightning saves and requeues as under srun",
     parse_flag<&LaunchOptions::elastic>},
    {"override", "no|yes", "whether values that you exported are replaced",
     parse_flag<&LaunchOptions::override_user>},
    {"verbose", "no|yes", "print the layout, address and port that are used",
     parse_flag<&LaunchOptions::verbose>, true},
    {"explain", "no|yes",
     "print the table of ranks, nodes, devices and addresses with reasons, and stop",
     parse_flag<&LaunchOptions::explain>, true},
    {"check", "no|SECONDS|yes",
     "how long the nodes wait until all reach the master address; yes is 10 seconds", parse_check,
     true},
    {"on_failure", "10|SECONDS|wait",
     "how long a step runs on after a task failed, before srun's plugin ends it", parse_on_failure},
};

Error unknown_key(std::string_view name) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  return {formatted("unknown option '{}': expected one of {}{}", printable(name),
                    joined(names, ", "), did_you_mean(name, names))};
}

Status apply(std::string_view entry, LaunchOptions& options) {
  const auto equals = entry.find('=');
  const auto name = entry.substr(0, equals);
  const auto* key = std::ranges::find(kKeys, name, &Key::name);
  if (key == std::end(kKeys)) return unknown_key(name);
  if (equals == std::string_view::npos && !key->flag) {
    return Error{formatted("option '{}' needs a value: {}={}", name, name, key->values)};
  }
  const auto value =
      equals == std::string_view::npos ? std::string_view("yes") : entry.substr(equals + 1);
  if (key->parse(value, options)) return Ok{};
  return Error{formatted("option '{}': expected {}={}", printable(entry), name, key->values)};
}

}  // namespace

Result<LaunchOptions> parse_options(std::string_view list, const LaunchOptions& base) {
  LaunchOptions options = base;
  if (list.empty()) return options;
  const auto entries = split_at(list, ',');
  for (const auto& entry : entries) {
    if (entry.empty() && &entry == &entries.back())
      return Error{"an empty option at the end of the list: expected KEY=VALUE after ','"};
    if (entry.empty()) return Error{"an empty option in the list: expected KEY=VALUE,KEY=VALUE"};
    if (const auto applied = apply(entry, options); !applied) return applied.error();
  }
  return options;
}

std::string options_help() {
  std::string help;
  for (const Key& key : kKeys) {
    help += "  " + std::string(key.name) + "=" + std::string(key.values) + "\n    " +
            std::string(key.help) + "\n";
  }
  return help;
}

}  // namespace torchbridge
