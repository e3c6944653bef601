#include "trainer_template/runtime/optim/state_pieces.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {

void StatePieces::add(const NamedTensors& file) {
  for (const auto& [name, tensor] : file) {
    const auto wanted = wanted_.find(name.substr(0, name.rfind('.')));
    if (wanted == wanted_.end()) {
      others_.emplace_back(name, tensor);
      continue;
    }
    const ElementRange& range = wanted->second;
    if (range.begin == range.end) continue;
    Collected& all = collected_[name];
    if (all.tensor.defined() && tensor.dim() > 0 && tensor.numel() > 0 && all.seen >= all.total)
      throw TrainError(formatted("optimizer state '{}' is in more than one file", name));
    if (tensor.dim() == 0 || (all.seen == 0 && range.end - range.begin == tensor.numel() &&
                              range.total == tensor.numel())) {
      all = {.tensor = tensor, .seen = 1, .total = 1};
      continue;
    }
    if (!all.tensor.defined())
      all = {.tensor = at::empty({range.end - range.begin}, tensor.options()),
             .total = range.total};
    const std::int64_t from = std::max(range.begin, all.seen);
    const std::int64_t to = std::min(range.end, all.seen + tensor.numel());
    if (from < to) {
      all.tensor.narrow(0, from - range.begin, to - from)
          .copy_(tensor.reshape(-1).narrow(0, from - all.seen, to - from));
    }
    all.seen += tensor.numel();
  }
}

NamedTensors StatePieces::take() {
  NamedTensors tensors = std::move(others_);
  for (auto& [name, all] : collected_) {
    if (all.seen != all.total) {
      throw TrainError(formatted("optimizer state '{}' has {} elements, expected {}", name,
                                 all.seen, all.total));
    }
    tensors.emplace_back(name, std::move(all.tensor));
  }
  collected_.clear();
  return tensors;
}

}  // namespace torchbridge::train
