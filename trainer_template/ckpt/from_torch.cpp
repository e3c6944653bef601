#include "trainer_template/ckpt/from_torch.h"

#include <algorithm>
#include <bit>
#include <set>

#include "trainer_template/ckpt/tensor_bytes.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/formats/python_optimizer.h"
#include "trainer_template/runtime/formats/state_dict.h"
#include "trainer_template/runtime/formats/torch_archive.h"

using namespace torchbridge::train;
using Kind = PickledValue::Kind;

namespace {

bool same(const PickledTensor& a, const PickledTensor& b) {
  return a.storage == b.storage && a.dtype == b.dtype && a.offset == b.offset && a.shape == b.shape &&
         a.strides == b.strides;
}

struct TorchWeights {
  std::vector<std::pair<std::string, const PickledTensor*>> tensors;  // each once
  std::map<std::string, std::string> metadata = {{"format", "pt"}};   // and the other names
};

TorchWeights weights_in(const TorchArchive& archive, const PickledValue& content) {
  const auto dict = find_state_dict(content);
  if (!dict) throw TrainError(archive.path().string() + " " + dict.error().message);
  const std::size_t prefix = common_prefix(**dict).size();
  TorchWeights weights;
  std::set<std::string> names;
  for (std::size_t i = 0; i < (*dict)->items.size(); i += 2) {
    const std::string name = (*dict)->items[i]->text.substr(prefix);
    const PickledTensor& tensor = (*dict)->items[i + 1]->tensor;
    if (!names.insert(name).second) throw TrainError(archive.path().string() + " has '" + name + "' twice");
    const auto tied =
        std::ranges::find_if(weights.tensors, [&](const auto& other) { return same(*other.second, tensor); });
    if (tied == weights.tensors.end()) {
      weights.tensors.emplace_back(name, &tensor);
    } else {
      weights.metadata[name] = tied->first;
    }
  }
  return weights;
}

// A state_dict does not mark which of its tensors are parameters. The buffers of normalisation layers are excluded by
// name.
std::vector<ParameterShape> likely_parameters(const TorchWeights& weights) {
  std::vector<ParameterShape> parameters;
  for (const auto& [name, tensor] : weights.tensors) {
    const bool buffer =
        name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
    if (!buffer) parameters.push_back({name, tensor->shape});
  }
  return parameters;
}

std::string bytes_of(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xff);
  return bytes;
}

void convert_optimizer(const TorchArchive& archive, const PickledValue& content, const TorchWeights& weights,
                       ArchiveTensors& tensors, const std::filesystem::path& to) {
  const PickledValue* optimizer = find_optimizer(content);
  if (optimizer == nullptr)
    throw TrainError(archive.path().string() +
                     " contains no optimizer state_dict under 'optimizer', 'optimizer_state_dict' or 'optim'");
  const auto state = state_by_name(*optimizer, likely_parameters(weights), {});
  if (!state) throw TrainError(archive.path().string() + ": " + state.error().message);
  std::vector<TensorBytes> all;
  std::vector<std::string> numbers;
  numbers.reserve(state->size());
  for (const auto& [name, value] : *state) {
    if (value->is(Kind::kTensor)) {
      all.push_back(tensors.contiguous(name, value->tensor));
    } else {
      const double number = value->is(Kind::kFloat) ? value->number : static_cast<double>(value->integer);
      all.push_back({name, "F32", {}, numbers.emplace_back(bytes_of(number))});
    }
  }
  write_safetensors_file(to, std::move(all), {{"format", "pt"}});
}

}  // namespace

void convert_from_torch(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::filesystem::path& optimizer) {
  const TorchArchive archive(from);
  const Pickled content = archive.content();
  const TorchWeights weights = weights_in(archive, *content);
  ArchiveTensors tensors(archive);
  std::vector<TensorBytes> all;
  for (const auto& [name, tensor] : weights.tensors) all.push_back(tensors.contiguous(name, *tensor));
  write_safetensors_file(to, std::move(all), weights.metadata);
  if (!optimizer.empty()) convert_optimizer(archive, *content, weights, tensors, optimizer);
}
