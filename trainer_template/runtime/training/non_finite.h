// Handles steps with an infinite or NaN loss or gradient: the job stops, or the step is skipped.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/part.h>
#include <torchbridge/process_group.h>
#include <torchbridge/settings.h>

#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {

struct NonFiniteOptions {
  OnNan on_nan = OnNan::kStop;
  bool scales_loss = false;    // loss scaling is on: gradients may overflow, such a step is skipped
                               // without a message
  std::int64_t max_skips = 0;  // so many skipped steps in a row are an error; 0: no limit
};

// Decides the same on all ranks. The optimizer itself skips the step, by StepSums::found_inf.
class NonFinite final : public Part {
 public:
  // `buffers`: of the model. The group must outlive this.
  NonFinite(const NonFiniteOptions& options, std::vector<at::Tensor> buffers, RankGroup& group);

  // The number of skipped steps in a row up to the latest step.
  std::string name() const override { return "skips"; }
  PartNumbers numbers() const override {
    return skips_ > 0 ? PartNumbers{{"", static_cast<double>(skips_)}} : PartNumbers();
  }
  void load(const SavedNumbers& saved) override { skips_ = saved.count_at(""); }

  // A skipped step must not leave NaN in the running statistics of batch normalisation, which would
  // keep it forever: they keep the buffers, and restore them if the device finds found_inf of the
  // step. With OnNan::kStop they do nothing.
  void before_step(std::int64_t step) override;
  void after_step(TrainingStep& step) override;

  // Collective if the step's numbers are not finite. The lowest rank concerned has TrainError as
  // error(), which names the samples of the step, and the others PeerFailed; with OnNan::kSkip that
  // rank prints a line on stderr instead. After max_skips skipped steps in a row all ranks have
  // TrainError.
  void read(const FinishedStep& step) override;

  // Why the run must end, on all ranks; null as long as it may go on.
  const std::exception_ptr& error() const { return error_; }

  // Call it before a save after `step`. Throws TrainError on all ranks if a weight is not finite,
  // as finite gradients with too large a learning rate make it. Waits for the device.
  void check_weights(std::int64_t step, const ModelTensors& model) const;

  // Whether check_end() may fail: each of `steps` was skipped, or the loss of the latest is not
  // finite. A step that fp16's loss scaling skips is no sign of bad weights.
  bool may_fail(std::int64_t steps) const { return skips_ == steps || has_bad_loss_; }
  // Call it at the end of a run of `steps`, before its last save. Throws TrainError on all ranks if
  // each step was skipped, or the last ones were and the evaluation's loss is not finite.
  void check_end(std::int64_t steps, const Evaluation& evaluation) const;

 private:
  void report(const FinishedStep& step);

  NonFiniteOptions options_;
  std::vector<at::Tensor> buffers_, before_;  // empty with OnNan::kStop
  std::exception_ptr error_;
  std::int64_t skips_ = 0;
  bool has_bad_loss_ = false;  // of the latest step
  RankGroup& group_;
};

}  // namespace torchbridge::train
