// What an epoch's order takes: sampler_time shuffled|permuted SIZE prints seconds to the first
// index and MiB of memory more.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "trainer_template/runtime/data/epoch_order.h"

using namespace torchbridge::train;

namespace {

// The largest resident set so far.
double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "sampler_time: expected shuffled|permuted SIZE\n"), 2;
  const bool permuted = std::string(argv[1]) == "permuted";
  const SamplerOptions options{.size = std::atoll(argv[2]),
                               .order = permuted ? Order::kPermuted : Order::kShuffled};
  // Libtorch's first call of an operation costs a millisecond.
  EpochOrder({.size = 10, .order = options.order}, 0);
  const double before = peak_mib();
  const auto begin = std::chrono::steady_clock::now();
  const EpochOrder order(options, 0);
  volatile std::int64_t first = order[0];
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  (void)first;
  std::printf("%.9f %.1f\n", time.count(), peak_mib() - before);
}
