// The ranks of a job as one group: they join at the store, communicate over the selected backends, and leave in order.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "bridge/base/env_map.h"
#include "bridge/launch/launch.h"
#include "trainer_template/runtime/backends/group_options.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/process_group/rank_group.h"
#include "trainer_template/runtime/tensors/error_text.h"

namespace c10d {
class Store;
}

namespace torchbridge::train {

// The owning handle. The end of its scope ends group and store: in order, with a barrier of ten seconds at most; or,
// where an exception leaves the scope, at once, so that the other ranks notice. A process that still hangs in a broken
// group after five seconds, as gloo may, ends with exit code 1. The members of RankGroup are collective, and those
// below that are marked so.
class ProcessGroup : public RankGroup {
 public:
  // Collective. Waits until all ranks have joined. Rank 0 serves the store, unless an agent does. With one rank no port
  // is opened. Throws TrainError, which names address, port and variable, or the missing ranks, or the wrong option;
  // PeerFailed where another rank reports the error. With several ranks SIGPIPE is ignored from then on, as in Python,
  // unless the program handles it.
  ProcessGroup(Launch launch, const GroupOptions& options);
  // The ranks join at this store instead, which all of them can reach: of any kind that c10d has, or yours.
  ProcessGroup(Launch launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store);
  ~ProcessGroup();

  // Not collective.
  const Layout& layout() const { return layout_; }
  const std::string& launcher() const { return launcher_; }
  // "gloo", "gloo over shared memory", "mpi", "cpu:gloo,cuda:nccl".
  const std::string& backend() const { return backend_; }
  // The device of options.device_id, with its index; the CPU without it.
  c10::Device device() const { return device_; }

  // Collective over all ranks, also those outside of the subgroup, which get null. `ranks` are of this group, in any
  // order; an empty list, an unknown rank and a duplicate are errors. The subgroup must end before this group does.
  std::unique_ptr<Subgroup> new_group(std::vector<int> ranks);
  // Collective over all ranks. per_node: the ranks on the node of this one. across_nodes: the ranks with the same index
  // on their nodes: the first of each, the second ... Nodes may hold different numbers of ranks.
  std::unique_ptr<Subgroup> per_node();
  std::unique_ptr<Subgroup> across_nodes();

  // Collective: the orderly end, at most ten seconds; throws where a rank does not take part.
  void leave();

  // Not collective; called once, after `error` has left everything that uses the group. Ends the connections, so that
  // all other ranks notice, and returns the message that this rank must print, or nothing where another rank reports.
  // Takes at most about a second.
  std::optional<std::string> message_for(const std::exception& error);

 private:
  struct State;
  void join(Launch& launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store);
  [[noreturn]] void give_up(const std::exception& error);
  void start_heartbeat(const std::string& own_address, std::chrono::milliseconds own_timeout);
  std::unique_ptr<Subgroup> own_subgroup(const std::vector<std::vector<int>>& partition);
  std::vector<std::vector<int>> nodes();
  void end();

  Layout layout_;
  std::string launcher_, backend_;
  c10::Device device_ = c10::Device(c10::kCPU);
  std::unique_ptr<State> state_;
};

// torch.distributed.init_process_group: finds out how this process was launched, by options.init_method or, without
// one, by its launcher, and forms the group. Collective. With a store, options or RANK and WORLD_SIZE must give rank
// and world size, and init_method must be left out. `environment` is the process's own. Throws as ProcessGroup does.
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options = {});
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options,
                                const c10::intrusive_ptr<c10d::Store>& store);

// The contents of libtorch's flight recorder, as JSON: the latest collectives of this process, of all its groups. Empty
// lists unless TORCH_FR_BUFFER_SIZE was above 0 when the process started. docs/use/process_groups.md describes it.
std::string flight_record();

// Runs `work`, which must not be collective, on every rank. When it throws on any, every rank throws: the lowest of
// them its own error, all others PeerFailed. So a folder that one node cannot write to ends the job with one line.
template <class Work>
void all_or_none(ProcessGroup& group, Work&& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const int first_failed = static_cast<int>(group.minimum(error ? group.rank() : group.world_size()));
  if (first_failed == group.world_size()) return;
  if (first_failed == group.rank()) std::rethrow_exception(error);
  throw PeerFailed();
}

}  // namespace torchbridge::train
