// What `torchbridge run` was asked to do: the options of its command line as values.
#pragma once

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/binding/numa_mode.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// Standard streams as a set, with torchrun's numbers: 0 none, 1 stdout, 2 stderr, 3 both.
inline constexpr int kNoStream = 0, kStdout = 1, kStderr = 2;

// The value of --redirects or --tee: a set for all workers ("3"), or one for each local rank
// ("0:1,1:2"; a local rank that it does not name has none).
struct StreamSelection {
  int all = kNoStream;
  std::map<int, int> by_local_rank;

  int of(int local_rank) const {
    const auto at = by_local_rank.find(local_rank);
    return at != by_local_rank.end() ? at->second : all;
  }
  bool operator==(const StreamSelection&) const = default;
};

// How lines of workers, and the agent's own, are printed: with torchrun's prefix, or as one JSON
// object each.
enum class LogFormat { kPrefix, kJson };

// The settings of --rdzv-conf, with torchrun's names and defaults. Times in seconds.
struct RendezvousConf {
  int join_timeout = 600;      // for the fewest nodes
  int last_call_timeout = 30;  // for more than these, before the first round
  int close_timeout = 30;      // for the other nodes to read that the run has ended
  int keep_alive_interval = 5, keep_alive_max_attempt = 3;
  int read_timeout = 5;         // of a request to etcd
  std::optional<bool> is_host;  // of the coordinator
  bool is_file = false;         // store_type=file: the endpoint is the path of a file
  std::string protocol = "http", etcd_prefix = "/torchelastic/p2p";
  std::string ca_cert, ssl_cert, ssl_cert_key;  // files for etcd, or empty
  std::string user, password;                   // or empty
  int ignored = 0;                              // of what torchrun alone reads
  // The keys that no backend reads, for messages: "'timout'; did you mean 'timeout'?". torchrun
  // ignores them.
  std::vector<std::string> unread;
  bool operator==(const RendezvousConf&) const = default;
};

// --nproc-per-node. kByLaunch, without it: as kAuto in the one task that a launcher started on this
// node, else one.
struct WorkersPerNode {
  enum class Kind { kByLaunch, kNumber, kAuto, kCpu, kGpu } kind = Kind::kByLaunch;
  int number = 1;  // of kNumber
  bool operator==(const WorkersPerNode&) const = default;
};

enum class RdzvBackend { kStatic, kC10d, kEtcd, kEtcdV2 };
inline constexpr std::string_view kRdzvBackends[] = {"static", "c10d", "etcd", "etcd-v2"};

// Where torchrun has the option, name and default are torchrun's.
struct RunOptions {
  // Nodes and rendezvous.
  int min_nodes = 0, max_nodes = 0;  // --nnodes; 0: not given, 1 or the tasks of the launcher
  int active_nodes = 0;              // 0: all
  WorkersPerNode nproc_per_node;
  RdzvBackend rdzv_backend = RdzvBackend::kStatic;
  std::string rdzv_endpoint;              // HOST[:PORT], or empty
  Endpoint rdzv_address{"localhost", 0};  // that it names; port 0: none is given
  std::string rdzv_id = "none";
  std::string rdzv_token_file;  // or empty
  RendezvousConf rdzv_conf;
  bool is_standalone = false;
  std::optional<int> node_rank;  // not given: the launcher's rank of the task, or 0
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  // a free port where it is not given
  std::string local_addr;          // or empty

  // What a worker runs.
  enum class Program { kByName, kModule, kNoPython, kRunPath } program_kind = Program::kByName;
  std::vector<std::string> program;  // with its arguments, byte for byte; not empty
  std::string called_as;  // the command's own path as it was called: "env/bin/torchbridge"
  // --local-rank=N as first argument, as torch.distributed.launch without --use-env.
  bool passes_local_rank = false;
  std::vector<std::string> preload;  // modules that are imported once; empty: by each worker
  std::string role = "default";
  bool has_virtual_local_rank = false;
  NumaMode numa_binding = NumaMode::kNone;

  // Failures. Times in seconds.
  int max_restarts = 0;
  double restart_backoff = 0;  // before the first restart; doubled for each further one, up to 60
  double grace = 30;           // from the first signal to SIGKILL
  double exit_barrier = 300;   // for workers that use no CPU time after others have ended well
  std::string health_check;    // a shell command, or empty
  double health_check_interval = 10;
  double uninterruptible_timeout = 0;  // in which a worker may be in uninterruptible sleep; 0: any
  // End the run, and the workers get them.
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

  // Output.
  std::string log_dir;  // or empty: a temporary folder
  StreamSelection redirects, tee;
  std::string log_line_prefix_template;  // with ${role_name} ...; empty: torchrun's
  std::optional<std::set<int>> local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters, duplicate_stderr_filters;
  LogFormat log_format = LogFormat::kPrefix;
  std::string print_completion;  // a shell: its completion is printed, and nothing runs; or empty
  std::string json_summary;      // a file, or empty
};

inline constexpr int kEtcdPort = 2379;
// Of --rdzv-endpoint where it has none, as in torchrun.
inline constexpr int kRendezvousPort = 29400;

// Whether --rdzv-id names the run.
inline bool is_named(const RunOptions& options) {
  return !options.is_standalone && !options.rdzv_id.empty() &&
         options.rdzv_id != RunOptions().rdzv_id;
}

}  // namespace torchbridge
