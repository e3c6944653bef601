// The start of training: from a checkpoint, from weights alone, or from initial weights.
#pragma once

#include <cstdint>

#include <torchbridge/checkpoint.h>
#include <torchbridge/data.h>
#include <torchbridge/lr_schedule.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/train_state.h>

namespace torchbridge::train {

// Loads the checkpoint to resume from, else --init-from, else keeps the initial weights. Seeds this
// rank's generators by --seed-per-rank, before it loads those of a checkpoint. The result's `run`
// is that of a checkpoint in --checkpoint-dir, else a new id. Collective: throws TrainError if the
// ranks have different data, or if training would resume in another order of samples, in other data
// or after their end. If a step has another number of
// samples than in the checkpoint's run, the state gets a new scale and rank 0 prints a message.
TrainState load_or_begin(const Options& options, const Dataset& train_set,
                         const ModelTensors& model, Optimizer& optimizer, Checkpoints& checkpoints,
                         ProcessGroup& group);

// How the steps of the run count from `state` on. Throws TrainError for impossible numbers.
StepScale step_scale_of(const TrainState& state);

// The steps of the whole run from step 0, with `state` as returned by load_or_begin() and a loader
// that begins at its position. The end of the loader and --max-steps limit them; --max-steps counts
// by step_scale_of(state).
std::int64_t total_steps(const Options& options, const Loader& loader, const TrainState& state);

}  // namespace torchbridge::train
