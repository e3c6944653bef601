// The order in which gloo's all-reduce adds up the values of the ranks. With three ranks or more
// the bits of the sums depend on it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace torchbridge::train {

// gloo/allreduce.cc, `ring`: the tensor is divided into a chunk a rank, each of at least two
// segments of at most 1 MiB. Chunk j begins with the values of rank j - 1, to which ranks j - 2, j
// - 3, ..., j add theirs in turn, counted modulo the number of ranks. Returns the elements of a
// chunk; the last ranks' chunks may be shorter, or empty. REQUIRES: elements > 0, ranks > 1.
inline std::size_t elements_of_chunk(std::size_t elements, std::size_t element_size,
                                     std::size_t ranks) {
  constexpr std::size_t kMostBytes = 1 << 20;
  const auto divided = [](std::size_t number, std::size_t by) { return (number + by - 1) / by; };
  const std::size_t bytes = elements * element_size,
                    most = std::max<std::size_t>(1, kMostBytes / element_size) * element_size;
  const std::size_t segments = divided(std::max(divided(bytes, most), 2 * ranks), ranks) * ranks;
  const std::size_t segment_elements = divided(divided(bytes, segments), element_size);
  return segments / ranks * segment_elements;
}

// Calls add(first, begin, end) for the parts of [begin, end) that lie in one chunk; `first` is the
// rank whose values come first.
template <class Add>
void for_chunks(std::size_t begin, std::size_t end, std::size_t chunk, std::size_t ranks,
                Add&& add) {
  while (begin < end) {
    const std::size_t index = begin / chunk, stop = std::min(end, (index + 1) * chunk);
    add((index + ranks - 1) % ranks, begin, stop);
    begin = stop;
  }
}

}  // namespace torchbridge::train
