#include "trainer_template/runtime/training/forward_loss.h"

#include <optional>
#include <string>

#include <c10/util/Exception.h>

#include "trainer_template/runtime/optim/autocast.h"

namespace torchbridge::train {
namespace {

// What the model throws, but for a broken connection, of which the group speaks.
at::Tensor forward(Model& model, const Batch& batch, std::int64_t step) try {
  return model.forward(batch.inputs);
} catch (const c10::DistError&) {
  throw;
} catch (const c10::Error& error) {
  throw TrainError("step " + std::to_string(step) + ": the model does not take a batch of " +
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
