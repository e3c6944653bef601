#include <torchbridge/train/checkpoint/resume_from_python.h>

#include <ATen/ops/scalar_tensor.h>
#include <torchbridge/train/checkpoint/python_optimizer.h>
#include <torchbridge/train/checkpoint/safetensors.h>
#include <torchbridge/train/checkpoint/state_dict.h>
#include <torchbridge/train/checkpoint/tied_weights.h>
#include <torchbridge/train/checkpoint/torch_file.h>
#include <torchbridge/train/optim/state_pieces.h>

#include <algorithm>

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;

double number_of(const PickledValue& value) { return value.is(Kind::kFloat) ? value.number : static_cast<double>(value.integer); }

NamedTensors optimizer_state(TorchFile& file, const ModelTensors& model, const Optimizer& optimizer) {
  const PickledValue* found = find_optimizer(file.content());
  if (found == nullptr) {
    throw TrainError(file.path().string() + " holds no optimizer's state_dict as 'optimizer', 'optimizer_state_dict' or 'optim': --init-from takes weights alone");
  }
  std::vector<ParameterShape> parameters;
  for (const auto& [name, parameter] : model.parameters) parameters.push_back({name, parameter.sizes().vec()});
  const auto state = state_by_name(*found, parameters, optimizer.record().groups, model.aliases);
  if (!state) throw TrainError(file.path().string() + ": " + state.error().message);
  NamedTensors tensors;
  for (const auto& [name, value] : *state) {
    tensors.emplace_back(name, value->is(Kind::kTensor) ? file.tensor(value->tensor) : at::scalar_tensor(number_of(*value), at::kFloat));
  }
  return tensors;
}

std::int64_t largest_step(const NamedTensors& state) {
  double largest = 0;
  for (const auto& [name, tensor] : state) {
    if (name.ends_with(".step") && tensor.numel() == 1) largest = std::max(largest, tensor.item<double>());
  }
  return static_cast<std::int64_t>(largest);
}

Manifest progress_in(const TorchFile& file, const NamedTensors& state) {
  const auto integer = [&](const char* key, std::int64_t otherwise) {
    const PickledValue* found = file.content().find(key);
    if (found == nullptr || !found->is(Kind::kInteger)) return otherwise;
    if (found->integer < 0) throw TrainError(file.path().string() + " has a negative '" + key + "'");
    return found->integer;
  };
  Manifest progress{.step = integer("step", largest_step(state))};
  progress.position = {.epoch = integer("epoch", 0), .consumed = integer("epoch_samples_consumed", 0)};
  progress.samples_seen = integer("samples_seen", 0);
  const PickledValue* scaler = file.content().find("scaler");
  for (const auto& [theirs, ours] : {std::pair("scale", "scale"), std::pair("_growth_tracker", "growth_tracker")}) {
    const PickledValue* found = scaler ? scaler->find(theirs) : nullptr;
    if (found && (found->is(Kind::kFloat) || found->is(Kind::kInteger))) progress.state[std::string("grad_scaler.") + ours] = number_of(*found);
  }
  return progress;
}

}  // namespace

Manifest resume_from_python(const std::filesystem::path& file, const ModelTensors& model, Optimizer& optimizer, ProcessGroup& group) {
  Manifest progress;
  all_or_none(group, [&] {
    TorchFile saved(file);
    const std::string what = file.string();
    const NamedTensors state = optimizer_state(saved, model, optimizer);
    progress = progress_in(saved, state);
    copy_tensors(without_aliases(saved.state_dict(), model, what), model.all(), what);
    StatePieces pieces(optimizer.ranges());
    pieces.add(state);
    optimizer.load_state(pieces.take());
  });
  progress.world_size = group.world_size();
  return progress;
}

}  // namespace torchbridge::train
