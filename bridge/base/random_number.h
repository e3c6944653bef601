// Random numbers that need not be secret, and pauses by which many processes that would do
// something in the same moment spread it. For secrets: net/random_token.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace torchbridge {

// From the kernel; while the kernel's generator is not initialised, from the clock. Unlike
// std::random_device, which takes arc4random of glibc 2.36 on Debian 12, it needs no newer glibc
// than the rest.
std::uint32_t random_number();

// Sleeps for a random time of at most `longest`.
void wait_random_delay(std::chrono::milliseconds longest);

// The longest delay before a request that each of so many nodes sends to Slurm's controller: a
// millisecond for each node, two seconds at most.
std::chrono::milliseconds request_spread(std::size_t nodes);

}  // namespace torchbridge
