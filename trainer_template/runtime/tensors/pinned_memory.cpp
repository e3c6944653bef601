#include "trainer_template/runtime/tensors/pinned_memory.h"

#include <atomic>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {

namespace {

// Not that there is no memory: the device is broken.
bool is_of_device(const c10::Error& error) {
  constexpr int kOutOfMemory = 2;  // CUDA's and HIP's
  const auto* of_device = dynamic_cast<const c10::AcceleratorError*>(&error);
  return of_device != nullptr && of_device->get_error_code() != kOutOfMemory;
}

}  // namespace

at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type) {
  try {
    return at::empty(sizes, at::TensorOptions(type).pinned_memory(true));
  } catch (const c10::Error& error) {
    if (is_of_device(error)) throw;
    static std::atomic<bool> is_reported{false};
    if (!is_reported.exchange(true)) {
      print_message(formatted(
          "no pinned memory ({}): copies between GPU and CPU use pageable memory, which is slower",
          one_line(error)));
    }
    return at::empty(sizes, type);
  }
}

}  // namespace torchbridge::train
