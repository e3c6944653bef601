// Evaluation: loss and metrics over a data set, by all ranks together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/training/stop_agreement.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

struct EvaluationOptions {
  std::int64_t batch_size = 32;                                 // of each rank
  int workers = 1;                                              // threads that load
  c10::ScalarType precision = c10::kFloat;                      // of autocast; kFloat: none
  std::function<at::Tensor(const at::Tensor& inputs)> forward;  // instead of the model's; empty: the model's
};

// Collective. Evaluates each sample of the task's eval_set() once, for any number of ranks, with the model in eval mode
// and the buffers of rank 0. The sums stay on the device until the end. Returns nothing if the ranks agree to stop
// before the end.
std::optional<Evaluation> evaluate(Model& model, const Task& task, DistributedDataParallel& ddp,
                                   const EvaluationOptions& options, StopAgreement& stop, ProcessGroup& group);

}  // namespace torchbridge::train
