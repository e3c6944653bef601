// The ranks of a job as one group: they join at the store, talk over the chosen backends, and part in order.
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
#include "trainer_template/runtime/tensors/error_text.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/backends/group_options.h"
#include "trainer_template/runtime/process_group/rank_group.h"

namespace c10d {
class Store;
}

namespace torchbridge::train {

struct BrokenGroup;

// The owning handle. A process that does not get away from a group that broke within five seconds, which gloo may bring
// about, ends by itself with exit code 1. The scope of this ends group and store: in order, with a barrier of ten
// seconds at most; or, where an exception leaves the scope, at once, so that the other ranks notice. Collective are the
// members of RankGroup, and those that say so.
class ProcessGroup : public RankGroup {
 public:
  // Collective. Waits until all ranks are there. Rank 0 serves the store, unless an agent does. With one rank nothing
  // is opened that others could reach. Throws TrainError, which names address, port and variable, or the ranks that are
  // missing, and what else is wrong with the options; PeerFailed where another rank says it. With several ranks SIGPIPE
  // is ignored from then on, as in Python, unless the program handles it.
  ProcessGroup(Launch launch, const GroupOptions& options);
  // The ranks join at this store instead, which all of them can reach: of any kind that c10d has, or yours.
  ProcessGroup(Launch launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store);
  ~ProcessGroup();

  // Not collective.
  const Layout& layout() const { return layout_; }
  const std::string& launcher() const { return launcher_; }
  // "gloo", "gloo over shared memory", "mpi", "cpu:gloo,cuda:nccl".
  const std::string& backend() const { return backend_; }
  // What options.device_id came to; the CPU without it.
  c10::Device device() const { return device_; }

  // Collective over all ranks, also those that are not in it, which get null. The ranks are those of this group, in any
  // order; an empty list, one that is not there and one that is named twice are errors. The group ends before this one
  // does.
  std::unique_ptr<Subgroup> new_group(std::vector<int> ranks);
  // Collective over all ranks. The ranks on the node of this one; and those that have the same place on their nodes:
  // the first of each, the second ... Nodes may hold different numbers of ranks.
  std::unique_ptr<Subgroup> per_node();
  std::unique_ptr<Subgroup> across_nodes();

  // Collective: the orderly end, at most ten seconds; throws where a rank did not come.
  void leave();

  // Not collective; called once, after `error` has left everything that uses the group. Ends the connections, so that
  // all other ranks notice, and returns what this rank must print, or nothing where another rank speaks. At most about
  // a second.
  std::optional<std::string> message_for(const std::exception& error);

 private:
  struct State;
  void join(Launch& launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store);
  [[noreturn]] void give_up(const std::exception& error);
  void start_heartbeat(const std::string& own_address, std::chrono::milliseconds own_silence);
  std::unique_ptr<Subgroup> own_part(const std::vector<std::vector<int>>& parts);
  std::vector<std::vector<int>> nodes();
  BrokenGroup broken_group() const;
  void end();

  Layout layout_;
  std::string launcher_, backend_;
  c10::Device device_ = c10::Device(c10::kCPU);
  std::unique_ptr<State> state_;
};

// torch.distributed.init_process_group: finds out how this process was launched, by options.init_method or, without
// one, by whatever started it, and forms the group. Collective. With a store, ranks and world size must be told by
// options or by RANK and WORLD_SIZE, and init_method must be left out. `environment` is the process's own. Throws as
// ProcessGroup does.
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options = {});
ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options,
                                const c10::intrusive_ptr<c10d::Store>& store);

// What the flight recorder of libtorch holds, as JSON: the latest collectives of this process, of all its groups. Empty
// lists unless TORCH_FR_BUFFER_SIZE was above 0 when the process started. docs/use/process_groups.md says what is in it.
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
