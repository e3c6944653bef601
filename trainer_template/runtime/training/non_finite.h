// What a step does whose loss or gradients are infinite or NaN: stops the job, or is left out.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer_template/runtime/process_group/rank_group.h"
#include "trainer_template/runtime/ddp/model_tensors.h"
#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {

enum class OnNan { kStop, kSkip };

struct NonFiniteOptions {
  OnNan on_nan = OnNan::kStop;
  bool scales_loss =
      false;  // with loss scaling gradients overflow now and then: such a step is left out without a line
  std::int64_t max_skips = 0;  // so many steps left out one after the other are an error; 0: no limit
};

// The same on all ranks. Parameters are left alone by the optimizer, which takes StepSums::found_inf.
class NonFinite {
 public:
  // `buffers`: of the model. `skips`: steps up to the latest that were left out, as in TrainState; it is kept up to
  // date. Both and the group must outlive it.
  NonFinite(const NonFiniteOptions& options, std::vector<at::Tensor> buffers, std::int64_t& skips, RankGroup& group);

  // Before the forward passes of a step, and after them: running statistics of batch normalisation would keep what a
  // bad batch leaves in them, NaN for good. The device decides, by `found_inf` (StepSums). With OnNan::kStop nothing is
  // kept.
  void keep_buffers();
  void restore_buffers(const at::Tensor& found_inf);

  // Where the step's numbers are not finite a collective: TrainError on the lowest rank that is concerned, with the
  // samples of the step, and PeerFailed on the others; with OnNan::kSkip a line on stderr, by that rank. Throws
  // TrainError on all ranks after max_skips steps that were left out.
  void check(const FinishedStep& step);

  // Before a save after `step`. Throws TrainError where a weight is not finite, on all ranks, whose weights are the
  // same: finite gradients and too large a learning rate do that. Waits for the device.
  void check_weights(std::int64_t step, const ModelTensors& model) const;

  // At the end of a run of `steps`, with its last evaluation. Throws TrainError on all ranks where nothing was learned:
  // each step was left out, or the evaluation's loss is not finite.
  void check_end(std::int64_t steps, const Evaluation& evaluation) const;

 private:
  void report(const FinishedStep& step);

  NonFiniteOptions options_;
  std::vector<at::Tensor> buffers_, before_;  // empty with OnNan::kStop
  std::int64_t& skips_;
  RankGroup& group_;
};

}  // namespace torchbridge::train
