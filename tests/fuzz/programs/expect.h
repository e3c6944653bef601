// What every fuzzer demands of the code under test: a broken promise ends the process, which
// libFuzzer reports.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

inline void expect(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", promise);
  std::abort();
}

// Messages go to terminals and logs: one line of printable text, and not megabytes of it.
inline void expect_presentable(const Error& error) {
  constexpr std::size_t kLongest = 1000;
  expect(!error.message.empty(), "an error has a message");
  expect(error.message.size() <= kLongest, "a message stays short");
  for (const char c : error.message) expect(c >= 0x20 && c < 0x7f, "a message is printable");
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline double number_before(std::string_view text, std::size_t end) {
  double number = 0, unit = 1;
  for (; end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9'; --end, unit *= 10)
    number += unit * (text[end - 1] - '0');
  return number;
}

inline double number_after(std::string_view text, std::size_t begin) {
  double number = 0;
  for (; begin < text.size() && text[begin] >= '0' && text[begin] <= '9'; ++begin)
    number = 10 * number + (text[begin] - '0');
  return number;
}

// How many entries the range LOW-HIGH or the repetition xN around text[i] has; 1 where it has so
// many that it is rejected.
inline double entries_around(std::string_view text, std::size_t i) {
  const double entries =
      number_after(text, i + 1) - (text[i] == '-' ? number_before(text, i) : 0) + 1;
  return entries < 1 || entries > 1'000'000 ? 1 : entries;
}

// Lists of up to a million entries are right, but expanding them takes a tenth of a second: the
// fuzzers leave out those that ask for more than a few thousand. Unit tests look at the limit.
inline bool is_slow(std::string_view text) {
  double total = 0, element = 1, ranges = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-' || c == 'x') ranges += entries_around(text, i);
    if (c == '[') inside = true;
    if (c == ',' && inside) ++ranges;
    if (c == ']') {
      inside = false;
      element *= ranges + 1;
      ranges = 0;
    }
    if ((c == ',' || c == '\n') && !inside) {
      total += element + ranges;
      element = 1;
      ranges = 0;
    }
  }
  return total + element + ranges > 3000;
}

}  // namespace torchbridge
