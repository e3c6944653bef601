#include "trainer_template/runtime/data/keyed_permutation.h"

#include <algorithm>
#include <bit>

#include "trainer_template/runtime/data/mix_bits.h"

namespace torchbridge::train {
namespace {

// A network of fewer bits would give the same order for too many keys: data sets of a few samples
// walk longer instead.
constexpr int kFewestBits = 6;

}  // namespace

KeyedPermutation::KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
    : size_(static_cast<std::uint64_t>(size)) {
  // Two numbers more than needed: the network has only even permutations, as each round is one. An
  // order of all its numbers would be even always; an order of two fewer may be even or odd.
  const int bits = std::max(kFewestBits, static_cast<int>(std::bit_width(size_ + 1)));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  const std::uint64_t key = random_bits(mix_bits(seed), static_cast<std::uint64_t>(epoch));
  for (int round = 0; round < kRounds; ++round) keys_[round] = random_bits(key, round);
}

std::int64_t KeyedPermutation::operator[](std::int64_t position) const {
  auto number = static_cast<std::uint64_t>(position);
  do {
    number = network(number);
  } while (number >= size_);
  return static_cast<std::int64_t>(number);
}

std::uint64_t KeyedPermutation::network(std::uint64_t number) const {
  std::uint64_t left = number >> right_bits_;
  std::uint64_t right = number & ((std::uint64_t{1} << right_bits_) - 1);
  for (int round = 0; round < kRounds; round += 2) {
    left ^= mix_bits(right + keys_[round]) >> (64 - left_bits_);
    right ^= mix_bits(left + keys_[round + 1]) >> (64 - right_bits_);
  }
  return left << right_bits_ | right;
}

}  // namespace torchbridge::train
