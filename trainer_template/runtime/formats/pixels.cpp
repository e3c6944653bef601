#include "trainer_template/runtime/formats/pixels.h"

// The loop is most of what loading images costs: built once for each width of vectors, and chosen
// when the program starts, which the sanitizers do not allow.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define WIDEST_VECTORS
#endif

namespace torchbridge::train {

WIDEST_VECTORS void unit_floats(std::span<const std::uint8_t> bytes, float* values) {
  const std::size_t count = bytes.size();
  const std::uint8_t* from = bytes.data();
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(from[i]) / 255.0f;
}

}  // namespace torchbridge::train
