// The samples that a run leaves out because they cannot be read (--skip-unreadable).
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace torchbridge::train {

// Any thread.
class SkippedSamples {
 public:
  // `data_set` and `rank` are for messages: "training set".
  SkippedSamples(std::string data_set, int rank) : data_set_(std::move(data_set)), rank_(rank) {}

  // Prints the sample, why it cannot be read, and how many there are so far; nothing if the sample
  // is known.
  void add(std::int64_t sample, const std::string& reason);
  // Of this rank, each sample once.
  std::int64_t count() const;

 private:
  const std::string data_set_;
  const int rank_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> samples_;
};

}  // namespace torchbridge::train
