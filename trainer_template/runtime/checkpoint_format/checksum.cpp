#include "trainer_template/runtime/checkpoint_format/checksum.h"

#include <xxhash.h>
#ifdef TORCHBRIDGE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // gives some of the names above to the kernels for this processor
#endif

#include <algorithm>
#include <cstdint>
#include <new>

#include "bridge/base/hex_text.h"

namespace torchbridge::train {
namespace {

constexpr std::uint64_t kWhole = 64 << 20, kBlockBytes = 4096, kSampledBlocks = 256;

void add(std::span<const std::byte> bytes, Checksum& checksum) {
  checksum.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

struct Checksum::State {
  State() : xxh3(XXH3_createState()) {
    if (xxh3 == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh3);
  }
  ~State() { XXH3_freeState(xxh3); }
  XXH3_state_t* const xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;

void Checksum::add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size());
}

std::string Checksum::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh3));
  return hex_of({reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest});
}

std::string checksum_of(std::string_view bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.digest();
}

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
