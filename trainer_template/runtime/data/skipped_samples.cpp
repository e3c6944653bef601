#include <iterator>

#include <torchbridge/skipped_samples.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {

void SkippedSamples::add(std::int64_t sample, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!samples_.insert(sample).second) return;
  print_message(formatted("rank {}: sample {} of the {} is skipped, {} so far: {}", rank_, sample,
                          data_set_, samples_.size(), reason));
}

std::int64_t SkippedSamples::count() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(samples_);
}

}  // namespace torchbridge::train
