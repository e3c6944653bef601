#include "trainer_template/runtime/base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace torchbridge::train {

#ifdef __SSE2__

// glibc's memcpy uses non-temporal stores too, but only for copies larger than three quarters of the last-level cache,
// which on servers is hundreds of MiB.
void stream_copy(std::string_view from, char* into) {
  constexpr std::size_t kLine = 64;
  const std::size_t before = std::min(from.size(), (kLine - reinterpret_cast<std::uintptr_t>(into) % kLine) % kLine);
  std::memcpy(into, from.data(), before);
  const char* source = from.data() + before;
  into += before;
  std::size_t rest = from.size() - before;
  for (; rest >= kLine; rest -= kLine, source += kLine, into += kLine) {
    const auto* const words = reinterpret_cast<const __m128i*>(source);
    auto* const line = reinterpret_cast<__m128i*>(into);
    const __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1), c = _mm_loadu_si128(words + 2),
                  d = _mm_loadu_si128(words + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  _mm_sfence();
  std::memcpy(into, source, rest);
}

#else

void stream_copy(std::string_view from, char* into) { std::memcpy(into, from.data(), from.size()); }

#endif

}  // namespace torchbridge::train
