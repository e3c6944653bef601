// What `torchbridge run` was asked to do: the options of its command line as values.
#pragma once

#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bridge/binding/numa_mode.h"

namespace torchbridge {

// Standard streams as a set, with torchrun's numbers: 0 none, 1 stdout, 2 stderr, 3 both.
inline constexpr int kNoStream = 0, kStdout = 1, kStderr = 2;

// The value of --redirects or --tee: a set for all workers ("3"), or one for each local rank ("0:1,1:2"; a local rank
// that it does not name has none).
struct StreamSelection {
  int all = kNoStream;
  std::map<int, int> by_local_rank;

  int of(int local_rank) const {
    const auto at = by_local_rank.find(local_rank);
    return at != by_local_rank.end() ? at->second : all;
  }
  bool operator==(const StreamSelection&) const = default;
};

// How lines of workers, and the agent's own, are printed: with torchrun's prefix, or as one JSON object each.
enum class LogFormat { kPrefix, kJson };

// Seconds of --rdzv-conf, with torchrun's names and defaults.
struct RendezvousTimes {
  int join_timeout = 600;      // for the fewest nodes
  int last_call_timeout = 30;  // for more than these, before the first round
  int close_timeout = 30;      // for the other nodes to read that the run has ended
  int keep_alive_interval = 5, keep_alive_max_attempt = 3;
  int read_timeout = 5;  // of a request to etcd
};

// Where torchrun has the option, name and default are torchrun 2.11's.
struct RunOptions {
  // Nodes and rendezvous.
  int min_nodes = 0, max_nodes = 0;     // --nnodes; 0: not given, 1 or the tasks of the launcher
  int active_nodes = 0;                 // 0: all
  std::string nproc_per_node;           // a number, auto, cpu or gpu; empty: worker_count()
  std::string rdzv_backend = "static";  // static, c10d, etcd or etcd-v2
  std::string rdzv_endpoint;            // HOST[:PORT], or empty
  std::string rdzv_id = "none";
  std::string rdzv_token_file;  // or empty
  std::map<std::string, std::string> rdzv_conf;
  bool is_standalone = false;
  int node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  // a free port where it is not given
  std::string local_addr;          // or empty

  // What a worker runs.
  enum class Program { kByName, kModule, kNoPython, kRunPath } program_kind = Program::kByName;
  std::vector<std::string> program;  // with its arguments, byte for byte; not empty
  bool passes_local_rank = false;    // --local-rank=N as first argument, as torch.distributed.launch without --use-env
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
  std::vector<int> signals_to_handle = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  // end the run, and the workers get them

  // Output.
  std::string log_dir;  // or empty: a temporary folder
  StreamSelection redirects, tee;
  std::optional<std::set<int>> local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters, duplicate_stderr_filters;
  LogFormat log_format = LogFormat::kPrefix;
  std::string json_summary;  // a file, or empty
};

inline constexpr int kEtcdPort = 2379;
inline constexpr int kRendezvousPort = 29400;  // of --rdzv-endpoint where it has none, as in torchrun

// What options.rdzv_conf gives, which the command line has checked.
RendezvousTimes rendezvous_times(const RunOptions& options);

}  // namespace torchbridge
