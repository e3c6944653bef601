// Process groups: torch.distributed.init_process_group for C++, and the frame of a main().
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torchbridge/env_map.h>
#include <torchbridge/errors.h>
#include <torchbridge/group_options.h>

#include "bridge/core/layout.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d
namespace torchbridge {
struct Launch;        // <torchbridge/launch.h>
struct LaunchOrigin;  // likewise
}  // namespace torchbridge

namespace torchbridge::train {

class Checkpoints;
class Session;
class FormedGroup;
class Heartbeat;

// Some or all ranks of a job, and their collectives. Every member function is a collective unless
// it is marked "not collective": all ranks of the group call it, in the same order, from one
// thread. They throw when a rank is lost or does not take part within the timeout.
class RankGroup {
 public:
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Not collective: the index of this rank in this group.
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool is_first() const { return rank_ == 0; }

  void barrier();
  // In place. A tensor on the CPU is summed by any group, on a GPU by one with a backend for it.
  void sum(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root = 0);
  std::int64_t minimum(std::int64_t value);
  // The root's text; the argument of the others is not used.
  std::string broadcast(const std::string& text, int root = 0);
  // One text of each rank, in the order of the ranks.
  std::vector<std::string> all_gather(const std::string& text);

  // Not collective. Throws where the collectives of the group were aborted: a result of sum() or of
  // c10d's collectives on a GPU is right only if this is called after the host has read it, and
  // returns. The other members do that themselves.
  void throw_if_aborted() const;
  // Not collective: for code that uses c10d itself.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

 protected:
  RankGroup(int rank, int world_size);
  ~RankGroup();

  void take(FormedGroup formed);
  bool is_formed() const { return formed_ != nullptr; }
  // A barrier of the group's ranks; on a GPU once that has done what was queued before. kAgain: of
  // all that have met, for which no rank counts as late.
  enum class Meeting { kOfSubgroup, kOfAll, kAgain };
  void meet(Meeting meeting, std::chrono::milliseconds limit);
  // Ends the connections in order, and releases the group. All ranks have met.
  void shut_down();
  // Releases the group without a wait.
  void release();
  // Leaves that to the whole group, which shuts down the connections, or aborts them.
  void keep_until_end(bool is_orderly);
  bool is_on_gpu() const;
  // Whether an exception leaves the scope of this.
  bool is_unwinding() const;
  // For tensors of numbers and texts: on the CPU wherever the group has a backend for it.
  at::TensorOptions small() const;

 private:
  int rank_, world_size_;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<FormedGroup> formed_;
};

// Some of the ranks. Ends with its scope: in order; but on a GPU, or where an exception leaves the
// scope, its connections are released when the next subgroup is formed, or with the whole group.
// After an exception no result of it may be used: what the GPU has still to do is aborted.
class Subgroup : public RankGroup {
 public:
  // Made by ProcessGroup.
  Subgroup(FormedGroup formed, std::vector<int> ranks, int rank);
  ~Subgroup();

  // By their ranks in the whole group, ascending.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// The ranks of a job as one group: they join at the store, communicate over the selected backends,
// and leave in order. The owning handle. The end of its scope ends group and store: in order, with
// a barrier of ten seconds at most; or, where an exception leaves the scope, at once, so that the
// other ranks notice. A process that still hangs in a broken group after five seconds, as gloo may,
// ends with exit code 1. The members of RankGroup are collective, and those below that are marked
// so.
class ProcessGroup : public RankGroup {
 public:
  // Collective. Waits until all ranks have joined. Rank 0 serves the store, unless an agent does.
  // With one rank no port is opened. Throws TrainError, which names address, port and variable, or
  // the missing ranks, or the wrong option; PeerFailed where another rank reports the error. With
  // several ranks SIGPIPE and SIGXFSZ are ignored from then on, as in Python, unless the program
  // handles them.
  ProcessGroup(Launch launch, const GroupOptions& options);
  // The ranks join at this store instead, which all of them can reach: of any kind that c10d has,
  // or yours, with compareSet().
  ProcessGroup(Launch launch, const GroupOptions& options,
               const c10::intrusive_ptr<c10d::Store>& store);
  ~ProcessGroup();

  // Not collective.
  const Layout& layout() const { return layout_; }
  // Whether layout() has the nodes of all ranks: not where these were set by hand without
  // GROUP_WORLD_SIZE, and LOCAL_WORLD_SIZE does not say that all are on one node.
  bool are_nodes_known() const { return are_nodes_known_; }
  // "started by slurm".
  const std::string& started() const { return started_; }
  // "gloo", "gloo over shared memory", "mpi", "cpu:gloo,cuda:nccl".
  const std::string& backend() const { return backend_; }
  // The device of options.device_id, with its index; the CPU without it.
  c10::Device device() const { return device_; }

  // Collective over all ranks, also those outside of the subgroup, which get null. `ranks` are of
  // this group, in any order; an empty list, an unknown rank and a duplicate are errors. The
  // subgroup must end before this group does. All ranks meet first, on GPUs once these have done
  // what is queued on the current streams; not where a program over NCCL alone begins with it.
  std::unique_ptr<Subgroup> new_group(std::vector<int> ranks);
  // Collective over all ranks. per_node: the ranks on the node of this one. across_nodes: the ranks
  // with the same index on their nodes: the first of each, the second ... Nodes may hold different
  // numbers of ranks.
  std::unique_ptr<Subgroup> per_node();
  std::unique_ptr<Subgroup> across_nodes();

  // Collective: the orderly end; throws where a rank does not take part. All ranks come within ten
  // seconds; over NCCL alone, and until their GPUs have done what is queued on the current streams,
  // within options.timeout.
  void leave();

  // Not collective; one of the two is called, once, after `error` has left everything that uses the
  // group. Ends the connections, so that all other ranks notice. report() prints the message of
  // this rank, on stderr and in TORCHELASTIC_ERROR_FILE; false where another rank reports.
  // message_for() returns it, or nothing, for who prints it otherwise: at once, before the group
  // ends. Takes at most about a second; five where the backend's abort hangs.
  bool report(const std::exception& error);
  std::optional<std::string> message_for(const std::exception& error);
  // Not collective, any thread: prints that message and ends the process with exit code 1, without
  // the end of anything that uses the group. For a handler of std::terminate.
  [[noreturn]] void report_and_exit(const std::exception& error);

 private:
  friend class Checkpoints;  // ranks report their writes over the heartbeat's connections
  friend class Session;      // all_meet()
  struct State;
  // Not collective: whether all ranks call it with this text within `timeout`, after the same
  // collectives of this group; all that call it get the same answer. For a rank whose own error
  // keeps it from the next collective, where the others may wait for it. Call it once with a text.
  bool all_meet(const std::string& place, std::chrono::milliseconds timeout);
  void join(Launch& launch, const GroupOptions& options,
            const c10::intrusive_ptr<c10d::Store>& store);
  void join_all(Launch& launch, const GroupOptions& options,
                const c10::intrusive_ptr<c10d::Store>& store);
  void choose_backends(const GroupOptions& options, bool several_nodes);
  void connect();
  void meet_by_heartbeat();
  void meet_all(std::chrono::milliseconds limit);
  void wait_for_gpu(std::chrono::milliseconds limit, std::size_t gone_before);
  [[noreturn]] void give_up(const std::exception& error);
  void start_heartbeat(const std::string& own_address, const GroupOptions& options);
  void check_heartbeat();
  std::unique_ptr<Subgroup> own_subgroup(const std::vector<std::vector<int>>& partition);
  std::vector<std::vector<int>> nodes();
  // Null with one rank. Collective where the ranks have not compared it yet.
  std::shared_ptr<Heartbeat> compared_link();
  void end();

  Layout layout_;
  bool are_nodes_known_ = true;
  std::string started_, backend_;
  c10::Device device_ = c10::Device(c10::kCPU);
  std::unique_ptr<State> state_;
};

// torch.distributed.init_process_group: finds out how this process was launched, by
// options.init_method or, without one, by its launcher, and forms the group. Collective. With a
// store, options or RANK and WORLD_SIZE must give rank and world size, and init_method must be left
// out. `environment` is the process's own. Throws as ProcessGroup does.
ProcessGroup init_process_group(const EnvMap& environment);
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options);
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options,
                                const c10::intrusive_ptr<c10d::Store>& store);

// The contents of libtorch's flight recorder, as JSON: the latest collectives of this process, of
// all its groups. Those of NCCL, which has a recorder of its own, are below the key "nccl". Empty
// lists where TORCH_FR_BUFFER_SIZE was 0 when the process started. docs/use/process_groups.md
// describes it.
std::string flight_record();

// Runs `work`, which must not be collective, on every rank. When it throws on any, every rank
// throws: the lowest of them its own error, all others PeerFailed. So a folder that one node cannot
// write to ends the job with one line.
template <class Work>
void all_or_none(ProcessGroup& group, Work&& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const int first_failed =
      static_cast<int>(group.minimum(error ? group.rank() : group.world_size()));
  if (first_failed == group.world_size()) return;
  if (first_failed == group.rank()) std::rethrow_exception(error);
  throw PeerFailed();
}

// The frame of a main(): launch, process group, error report, exit code.
//
// Calls `configure` (which may throw EarlyExit), resolves the launch of this process, forms the
// process group and calls `train`. An error is one line on stderr from one rank, "PROGRAM: rank R:
// message", which that rank also writes to TORCHELASTIC_ERROR_FILE, if it is set; so is a signal
// that ends the process (<torchbridge/record.h>). Errors of `configure` and of a contradictory
// launch occur on every rank: rank 0 reports them. Returns the exit code of the process: that of
// `train` if there was no error. Of several ranks, one that is stopped after `train` for two
// seconds longer than the heartbeat's timeout is killed, also while main() still runs; not with a
// timeout of 0.
int run_job(const LaunchOrigin& origin, const std::function<GroupOptions()>& configure,
            const std::function<ExitCode(ProcessGroup&)>& train);

// For a `train` that returns nothing: kDone.
template <class Train>
requires std::is_void_v<std::invoke_result_t<Train&, ProcessGroup&>>
int run_job(const LaunchOrigin& origin, const std::function<GroupOptions()>& configure,
            Train&& train) {
  return run_job(origin, configure,
                 std::function<ExitCode(ProcessGroup&)>([&train](ProcessGroup& group) {
                   train(group);
                   return ExitCode::kDone;
                 }));
}

}  // namespace torchbridge::train
