// Gradient accumulation: the batches that make one optimizer step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <torchbridge/train/data/loader.h>

namespace torchbridge::train {

// The next `parts` batches, or fewer where an epoch ends; none at the end. An epoch's last step is never filled up with samples of
// the next one.
inline std::vector<Batch> next_parts(Loader& loader, std::int64_t parts) {
  std::vector<Batch> batches;
  while (std::ssize(batches) < parts) {
    auto batch = loader.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
    if (batches.back().next.epoch != batches.back().epoch) break;
  }
  return batches;
}

// Optimizer steps from `start` on, without regard to max_batches.
inline std::int64_t steps_left(const SamplerOptions& sampler, LoaderOptions options, SamplerPosition start,
                               std::int64_t parts) {
  const std::int64_t epochs = options.epochs;
  options.max_batches = -1;
  const auto steps_until = [&](std::int64_t end, SamplerPosition from) {
    options.epochs = end;
    return (batches_left(sampler, options, from) + parts - 1) / parts;
  };
  if (start.epoch >= epochs) return 0;
  return steps_until(start.epoch + 1, start) + (epochs - start.epoch - 1) * steps_until(1, {});
}

}  // namespace torchbridge::train
