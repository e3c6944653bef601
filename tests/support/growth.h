// How the CPU time of some work grows with the number of items.
#pragma once

#include <time.h>

// CPU seconds that this thread takes for `work`.
template <class Work>
double cpu_seconds(Work&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

// The time of work(8 * items) divided by that of work(items), about 8 where it is linear and 64
// where it is quadratic.
template <class Work>
double growth(int items, Work&& work) {
  const double few = cpu_seconds([&] { work(items); });
  return cpu_seconds([&] { work(8 * items); }) / few;
}

constexpr double kLinearGrowth = 24;  // at most, with caches that no longer hold all items
