// The progress of a training without its tensors: a checkpoint's manifest contains it, and a later start resumes from
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer_template/runtime/base/sampler_position.h"

namespace torchbridge::train {

// Indices of parameters, bucket by bucket, in the order in which DistributedDataParallel reduces the buckets.
using BucketLayout = std::vector<std::vector<std::size_t>>;

// Of GradScaler (optim/grad_scaler.h).
struct GradScalerState {
  double scale = 0;
  std::int64_t growth_tracker = 0;  // steps without overflow since the scale changed

  bool operator==(const GradScalerState&) const = default;
};

// Of Plateau (optim/plateau.h).
struct PlateauState {
  std::vector<double> learning_rates;  // of the parameter groups
  std::optional<double> best;          // of the losses observed; nothing before the first that is a number
  std::int64_t bad = 0, cooldown = 0;  // evaluations

  bool operator==(const PlateauState&) const = default;
};

// Of EarlyStop (training/early_stop.h).
struct EarlyStopState {
  std::optional<double> best_loss;
  std::int64_t best_step = 0;  // of best_loss
  std::int64_t without = 0;    // evaluations since, or since the start, without a lower loss

  bool operator==(const EarlyStopState&) const = default;
};

// The same on all ranks.
struct TrainState {
  std::string run;        // id of the training, the same over all its starts; empty: started by a version without ids
  std::int64_t step = 0;  // optimizer steps done
  SamplerPosition position = {};   // of the next sample
  std::int64_t samples_seen = 0;   // by all ranks, in all epochs
  std::uint64_t seed = 0;          // of the sampler
  std::string train_set;           // fingerprint of the training set; empty: not known
  std::int64_t train_samples = 0;  // samples of an epoch; 0: not known
  // Training time over all starts, without steps that a kill has undone. It differs from run to run.
  double seconds = 0;
  std::int64_t skips = 0;          // consecutive skipped steps up to the latest one (training/non_finite.h)
  bool evaluation_is_due = false;  // the evaluation of this step was interrupted
  BucketLayout buckets;            // as rebuilt after DDP's first step: makes resuming bit-exact
  std::optional<GradScalerState> grad_scaler;
  std::optional<PlateauState> plateau;
  EarlyStopState early_stop;

  bool operator==(const TrainState&) const = default;
};

}  // namespace torchbridge::train
