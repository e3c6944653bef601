// torch.autocast as a scope: the operations on its list compute in bfloat16 or float16.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace torchbridge::train {

// Applies to the thread that makes it, until its destructor. Put it around forward and loss, not
// around backward. Scopes nest; the outermost one clears the cache of cast weights at its end, so
// weights are cast once in each step.
class Autocast {
 public:
  // `type`: c10::kBFloat16 or c10::kHalf; c10::kFloat switches an outer scope off. Throws
  // TrainError for any other.
  Autocast(c10::DeviceType device, c10::ScalarType type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_;
  const bool before_enabled_, before_cached_;
  const c10::ScalarType before_type_;
};

}  // namespace torchbridge::train
