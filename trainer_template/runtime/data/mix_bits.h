// Random-looking 64-bit numbers from counters, the same on every machine.
#pragma once

#include <cstdint>

namespace torchbridge::train {

// A bijection of 64-bit numbers in which each bit of the input changes half of the output's: the
// output function of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, OOPSLA 2014; constants: variant 13 of D. Stafford).
constexpr std::uint64_t mix_bits(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

// Number `counter` of the sequence that `seed` begins: SplitMix64's, which steps by the golden
// ratio.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  return mix_bits(seed + (counter + 1) * 0x9e3779b97f4a7c15);
}

}  // namespace torchbridge::train
