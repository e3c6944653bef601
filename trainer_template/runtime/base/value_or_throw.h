// From a Result to the trainer's exceptions.
#pragma once

#include <utility>

#include <torchbridge/errors.h>

#include "bridge/base/result.h"

namespace torchbridge::train {

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw TrainError(result.error().message);
  return *std::move(result);
}

}  // namespace torchbridge::train
