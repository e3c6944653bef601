// What libtorch changed in c10d after 2.11, in one place.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/headeronly/version.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

// Whether libtorch is 2.MINOR or newer, for the preprocessor.
#define TORCHBRIDGE_LIBTORCH_SINCE(minor) \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// The collective that gathers one tensor of each rank into one: the old name is deprecated, and
// overrides nothing.
#if TORCHBRIDGE_LIBTORCH_SINCE(13)
#define TORCHBRIDGE_ALL_GATHER_SINGLE all_gather_single
#else
#define TORCHBRIDGE_ALL_GATHER_SINGLE _allgather_base
#endif
// The same of a c10d::Backend.
#if TORCHBRIDGE_LIBTORCH_SINCE(14)
#define TORCHBRIDGE_BACKENDS_ALL_GATHER_SINGLE all_gather_single
#else
#define TORCHBRIDGE_BACKENDS_ALL_GATHER_SINGLE _allgather_base
#endif

namespace torchbridge::train {

// Collective. From 2.14 on the ranks' numbers of collectives begin with 0, and the call prints a
// warning.
inline void agree_on_sequence_numbers([[maybe_unused]] c10d::Backend& backend) {
#if !TORCHBRIDGE_LIBTORCH_SINCE(14)
  backend.setSequenceNumberForGroup();
#endif
}

// A c10d::Reducer by the arguments of 2.11, and by those that later versions added. Throws where
// the version lacks one that is not false.
template <class Reducer, class... Arguments>
std::shared_ptr<Reducer> make_reducer_of_version(bool batched_grad_copy,
                                                 bool lazy_bucket_allocation,
                                                 Arguments&&... arguments) {
  const auto require = [](bool is_set, const char* name) {
    if (is_set)
      throw TrainError(
          formatted("DDP's {} is not in libtorch " TORCH_VERSION ": build with a newer one", name));
  };
  if constexpr (std::is_constructible_v<Reducer, Arguments..., bool, bool>) {
    return std::make_shared<Reducer>(std::forward<Arguments>(arguments)..., batched_grad_copy,
                                     lazy_bucket_allocation);
  } else if constexpr (std::is_constructible_v<Reducer, Arguments..., bool>) {
    require(lazy_bucket_allocation, "lazy_bucket_allocation");
    return std::make_shared<Reducer>(std::forward<Arguments>(arguments)..., batched_grad_copy);
  } else {
    require(batched_grad_copy, "batched_grad_copy");
    require(lazy_bucket_allocation, "lazy_bucket_allocation");
    return std::make_shared<Reducer>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace torchbridge::train
