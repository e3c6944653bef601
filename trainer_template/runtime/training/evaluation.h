// Evaluation: loss and metrics over a data set, by all ranks together.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torchbridge/process_group.h>
#include <torchbridge/skipped_samples.h>
#include <torchbridge/task.h>

#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/training/stop_agreement.h"

namespace torchbridge::train {

struct EvaluationOptions {
  std::int64_t batch_size = 32;             // of each rank
  int workers = 1;                          // threads that load
  c10::ScalarType precision = c10::kFloat;  // of autocast; kFloat: none
  // Instead of the model's; empty: the model's.
  std::function<at::Tensor(const at::Tensor& inputs)> forward;
  std::int64_t max_batches = -1;            // of each rank; -1: all
  std::shared_ptr<SkippedSamples> skipped;  // of the evaluation set, as in LoaderOptions
};

// How an evaluation has ended, the same on all ranks: with a result, or with an error, or by an
// agreement to stop.
struct EvaluationEnd {
  std::optional<Evaluation> result;
  // Of the first rank on which a sample, the model or a metric threw; PeerFailed on the others.
  std::exception_ptr error;
  // If the loss is infinite or NaN: "NaN, first at sample 5 of the evaluation set".
  std::string not_finite;

  // The result, but none if it is an error at the end of the run, which the same command repeats.
  std::optional<Evaluation> to_record(bool is_last) const {
    return is_last && !not_finite.empty() ? std::nullopt : result;
  }
};

// Collective. Evaluates each sample of the task's eval_set() once, for any number of ranks, with
// the model in eval mode. REQUIRES: its weights and buffers are the same on all ranks. The sums
// stay on the device until the end. Throws if the group or the device is broken.
EvaluationEnd evaluate(Model& model, const Task& task, const EvaluationOptions& options,
                       StopAgreement& stop, ProcessGroup& group);

}  // namespace torchbridge::train
