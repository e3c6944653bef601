// Training with uneven inputs: ranks without more inputs take part in the others' collectives until all ranks are done.
#pragma once

#include <functional>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "trainer_template/runtime/process_group/process_group.h"

namespace c10d {
class Work;
}

namespace torchbridge::train {

// Python's torch.distributed.algorithms.Join.
struct JoinOptions {
  // Divides gradients by the initial world size, so that each sample has the same weight; else by the number of ranks
  // that still have inputs.
  bool divide_by_initial_world_size = true;
  bool enable = true;
  // When one rank has no more inputs all ranks throw InputsExhausted instead of continuing without it.
  bool throw_on_early_termination = false;
};

struct InputsExhausted : TrainError {
  using TrainError::TrainError;
};

// An object with collectives in each iteration of a training loop, such as DDP.
class Joinable {
 public:
  virtual ~Joinable() = default;

 protected:
  // To be called before an iteration's own collectives. Returns the all-reduce that counts the ranks with inputs, or
  // nothing outside of join() and for all but the first of its joinables.
  c10::intrusive_ptr<c10d::Work> notify_join();
  const JoinOptions& join_options() const { return options_; }
  bool is_joining() const { return group_ != nullptr; }

 private:
  friend void join(const std::vector<Joinable*>&, ProcessGroup&, const JoinOptions&, const std::function<void()>&);

  // Throws TrainError when the object cannot be used within join().
  virtual void begin_join() = 0;
  // The device of the collectives' tensors.
  virtual at::Device join_device() const = 0;
  // Collective. Makes an iteration's collectives on a rank without inputs.
  virtual void shadow_iteration() = 0;
  // Collective, once, when no rank has more inputs; `was_last` on the ranks that had inputs longest.
  virtual void all_joined(bool was_last) = 0;

  JoinOptions options_;
  ProcessGroup* group_ = nullptr;  // within join()
  bool notifies_ = false;
};

// Runs `train`, a training loop whose number of iterations may differ between the ranks, and returns when all ranks
// have finished it. An iteration is one forward pass of each of the joinables, in the order given here. An exception of
// `train` leaves join() at once. The loop must contain no other collectives, also no SyncBatchNorm, unless
// throw_on_early_termination is set.
void join(const std::vector<Joinable*>& joinables, ProcessGroup& group, const JoinOptions& options,
          const std::function<void()>& train);

}  // namespace torchbridge::train
