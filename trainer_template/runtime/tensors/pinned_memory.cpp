#include "trainer_template/runtime/tensors/pinned_memory.h"

#include <atomic>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/tensors/error_text.h"

namespace torchbridge::train {

at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type) {
  try {
    return at::empty(sizes, at::TensorOptions(type).pinned_memory(true));
  } catch (const c10::Error& error) {
    static std::atomic<bool> is_reported{false};
    if (!is_reported.exchange(true)) {
      print_message("no pinned memory (" + one_line(error) +
                    "): copies between GPU and CPU use pageable memory, which is slower");
    }
    return at::empty(sizes, type);
  }
}

}  // namespace torchbridge::train
