#include "trainer_template/runtime/checkpoint_format/checksum.h"

#include <xxhash.h>
#ifdef TORCHBRIDGE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // gives some of the names above to the kernels for this processor
#endif

#include <new>

#include "bridge/base/hex_text.h"

namespace torchbridge::train {

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

}  // namespace torchbridge::train
