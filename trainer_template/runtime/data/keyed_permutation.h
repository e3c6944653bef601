// A random-looking order of 0 .. size-1 that is computed, not stored: the first index of 10^9 takes
// no longer than any other.
//
// An alternating Feistel network over the smallest power of two that holds size + 2, and cycle
// walking: what falls outside of 0 .. size-1 is permuted again, at most once more on average (J.
// Black, P. Rogaway: Ciphers with Arbitrary Finite Domains, CT-RSA 2002). 24 rounds, as R. Mitchell
// et al. found needed to pass tests of shuffling (Bandwidth-Optimal Random Shuffling for GPUs, ACM
// TOPC 2022). It is for training, not for secrets.
#pragma once

#include <array>
#include <cstdint>

namespace torchbridge::train {

// May be read from any thread.
class KeyedPermutation {
 public:
  // Each (seed, epoch) has an order of its own. REQUIRES: 1 <= size <= 2^62.
  KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

  // REQUIRES: 0 <= position < size.
  std::int64_t operator[](std::int64_t position) const;

 private:
  static constexpr int kRounds = 24;

  std::uint64_t network(std::uint64_t number) const;

  const std::uint64_t size_;
  int left_bits_, right_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace torchbridge::train
