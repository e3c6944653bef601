#include "trainer_template/runtime/training/forward_loss.h"

#include <optional>
#include <string>

#include <c10/util/Exception.h>

#include "trainer_template/runtime/optim/autocast.h"

namespace torchbridge::train {
namespace {

// Turns the model's error into a message about the batch. The group reports a broken connection, so DistError passes.
at::Tensor forward(Model& model, const Batch& batch, std::int64_t step) try {
  return model.forward(batch.inputs);
} catch (const c10::DistError&) {
  throw;
} catch (const c10::Error& error) {
  throw TrainError("step " + std::to_string(step) + ": the model rejects a batch of " +
                   std::to_string(batch.samples()) + (batch.samples() == 1 ? " sample: " : " samples: ") +
                   one_line(error));
}

}  // namespace

at::Tensor forward_loss(DistributedDataParallel& ddp, Model& model, const Task& task, const Batch& batch,
                        c10::ScalarType precision, std::int64_t step) {
  std::optional<Autocast> autocast;
  if (precision != c10::kFloat) autocast.emplace(batch.inputs.device().type(), precision);
  const at::Tensor outputs = ddp.forward([&] { return forward(model, batch, step); });
  return task.loss(outputs, batch.targets);
}

}  // namespace torchbridge::train
