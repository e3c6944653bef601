// Tensors sorted into lists of one device and type each, which is what foreach and fused operations
// take.
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torchbridge::train {

// Lists in the order in which their first item appears, as Python has them; `tensor_of` gives the
// tensor of an item.
template <class Item, class TensorOf>
std::vector<std::vector<Item>> by_device_and_type(std::vector<Item> items, TensorOf tensor_of) {
  std::vector<std::vector<Item>> lists;
  std::map<std::tuple<c10::DeviceType, int, at::ScalarType>, std::size_t> list_of;
  for (Item& item : items) {
    const at::Tensor& tensor = tensor_of(item);
    const auto device = tensor.device();
    const auto [found, fresh] =
        list_of.try_emplace({device.type(), device.index(), tensor.scalar_type()}, lists.size());
    if (fresh) lists.emplace_back();
    lists[found->second].push_back(std::move(item));
  }
  return lists;
}

inline std::vector<std::vector<at::Tensor>> by_device_and_type(std::vector<at::Tensor> tensors) {
  return by_device_and_type(std::move(tensors),
                            [](const at::Tensor& tensor) -> const at::Tensor& { return tensor; });
}

}  // namespace torchbridge::train
