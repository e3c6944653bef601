#include "trainer_template/runtime/checkpoint/resume_from_python.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/scalar_tensor.h>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/checkpoint/tied_weights.h"
#include "trainer_template/runtime/checkpoint/torch_file.h"
#include "trainer_template/runtime/formats/python_optimizer.h"
#include "trainer_template/runtime/formats/state_dict.h"
#include "trainer_template/runtime/optim/state_pieces.h"

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;

constexpr double kMost = 999'999'999'999;  // also the largest step in the name of a checkpoint
constexpr const char* kWholeNumber = "a whole number from 0 to 999999999999";

bool is_whole(double value) { return value >= 0 && value <= kMost && std::trunc(value) == value; }

[[noreturn]] void reject_number(const TorchFile& file, const std::string& name, double value, const char* expected) {
  std::ostringstream text;
  text << file.path().string() << " has '" << printable(name) << "' " << value << ": expected " << expected;
  throw TrainError(text.str());
}

double number_of(const PickledValue& value) {
  return value.is(Kind::kFloat) ? value.number : static_cast<double>(value.integer);
}

// The number under `key`; nullopt if there is none, or None. Throws unless `fits` is true; `expected` describes it.
std::optional<double> number_at(const TorchFile& file, const PickledValue& dict, const char* key, bool (*fits)(double),
                                const char* expected) {
  const PickledValue* found = dict.find(key);
  if (found == nullptr || found->is(Kind::kNone)) return std::nullopt;
  const bool number = found->is(Kind::kFloat) || found->is(Kind::kInteger);
  if (number && fits(number_of(*found))) return number_of(*found);
  if (number) reject_number(file, key, number_of(*found), expected);
  throw TrainError(file.path().string() + " has '" + key + "', which is not a number: expected " + expected);
}

std::optional<double> whole_number_at(const TorchFile& file, const PickledValue& dict, const char* key) {
  return number_at(file, dict, key, is_whole, kWholeNumber);
}

// `maximize` decides the direction of a step. All other options may change from run to run.
void check_maximize(const TorchFile& file, const PickledValue& theirs, const OptimizerRecord& ours) {
  std::set<bool> there, here;
  for (const Pickled& group : theirs.find("param_groups")->items) {
    const PickledValue* found = group->find("maximize");
    there.insert(found != nullptr && found->integer != 0);
  }
  for (const auto& group : ours.groups) {
    const auto found = group.options.find("maximize");
    here.insert(found != group.options.end() && found->second != 0);
  }
  if (there == here) return;
  throw TrainError(file.path().string() + ": its optimizer has maximize=" + (there.contains(true) ? "True" : "False") +
                   " in param_groups, unlike this run's");
}

NamedTensors optimizer_state(TorchFile& file, const ModelTensors& model, const Optimizer& optimizer) {
  const PickledValue* found = find_optimizer(file.content());
  if (found == nullptr) {
    throw TrainError(file.path().string() +
                     " contains no optimizer state_dict under 'optimizer', 'optimizer_state_dict' or 'optim': to load "
                     "only the weights, use --init-from");
  }
  const OptimizerRecord record = optimizer.record();
  check_maximize(file, *found, record);
  std::vector<ParameterShape> parameters;
  for (const auto& [name, parameter] : model.parameters)
    parameters.push_back({name, parameter.sizes().vec(), parameter.requires_grad()});
  const bool stepped = whole_number_at(file, file.content(), "step").value_or(0) > 0;
  const auto state = state_by_name(*found, parameters, record.groups, model.aliases, stepped);
  if (!state) throw TrainError(file.path().string() + ": " + state.error().message);
  NamedTensors tensors;
  for (const auto& [name, value] : *state) {
    tensors.emplace_back(
        name, value->is(Kind::kTensor) ? file.tensor(value->tensor) : at::scalar_tensor(number_of(*value), at::kFloat));
  }
  return tensors;
}

// The largest "step" of all parameters. Throws TrainError if one is not a whole number in range.
std::int64_t largest_step(const TorchFile& file, const NamedTensors& state) {
  double largest = 0;
  for (const auto& [name, tensor] : state) {
    if (!name.ends_with(".step") || tensor.numel() != 1) continue;
    const auto step = tensor.item<double>();
    if (!is_whole(step)) reject_number(file, name, step, kWholeNumber);
    largest = std::max(largest, step);
  }
  return static_cast<std::int64_t>(largest);
}

TrainState state_in(const TorchFile& file, const NamedTensors& optimizer) {
  const auto integer = [&](const char* key) {
    return static_cast<std::int64_t>(whole_number_at(file, file.content(), key).value_or(0));
  };
  const std::int64_t of_optimizer = largest_step(file, optimizer);
  const auto step = whole_number_at(file, file.content(), "step");
  TrainState state{.step = step ? static_cast<std::int64_t>(*step) : of_optimizer};
  state.position = {.epoch = integer("epoch"), .consumed = integer("epoch_samples_consumed")};
  state.samples_seen = integer("samples_seen");
  if (const PickledValue* scaler = file.content().find("scaler")) {
    using Float = std::numeric_limits<float>;
    const auto is_scale = [](double value) { return value >= Float::min() && value <= Float::max(); };
    const auto scale = number_at(file, *scaler, "scale", is_scale, "a finite loss scale above 0");
    const auto tracker = whole_number_at(file, *scaler, "_growth_tracker");
    if (scale.has_value() != tracker.has_value())
      throw TrainError(file.path().string() + ": the state of the GradScaler is incomplete");
    if (scale) state.grad_scaler = {.scale = *scale, .growth_tracker = static_cast<std::int64_t>(*tracker)};
  }
  return state;
}

}  // namespace

TrainState resume_from_python(const std::filesystem::path& file, const ModelTensors& model, Optimizer& optimizer,
                              ProcessGroup& group) {
  TrainState state;
  all_or_none(group, [&] {
    TorchFile saved(file);
    const std::string what = file.string();
    const NamedTensors of_optimizer = optimizer_state(saved, model, optimizer);
    state = state_in(saved, of_optimizer);
    copy_tensors(without_aliases(saved.state_dict(), model, what), model.all(), what);
    StatePieces pieces(optimizer.ranges());
    pieces.add(of_optimizer);
    optimizer.load_state(pieces.take());
  });
  return state;
}

}  // namespace torchbridge::train
