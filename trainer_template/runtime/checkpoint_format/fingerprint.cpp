#include "trainer_template/runtime/checkpoint_format/fingerprint.h"

#include <algorithm>
#include <cstdint>

#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kWhole = 64 << 20, kBlockBytes = 4096, kSampledBlocks = 256;

void add(std::span<const std::byte> bytes, Checksum& checksum) {
  checksum.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string fingerprint_of(std::span<const std::span<const std::byte>> pieces) {
  if (pieces.empty()) return {};
  Checksum checksum;
  std::uint64_t total = 0;
  for (const auto& piece : pieces) {
    checksum.add(std::to_string(piece.size()) + "\n");
    total += piece.size();
  }
  std::uint64_t begin = 0, block = 0;  // of the piece, among all bytes; the next one
  for (const auto& piece : pieces) {
    if (total <= kWhole) add(piece, checksum);
    for (; total > kWhole && block < kSampledBlocks; ++block) {
      const std::uint64_t start = block * (total - kBlockBytes) / (kSampledBlocks - 1);
      if (start >= begin + piece.size()) break;
      add(piece.subspan(start - begin, std::min(kBlockBytes, begin + piece.size() - start)),
          checksum);
    }
    begin += piece.size();
  }
  return checksum.digest();
}

}  // namespace torchbridge::train
