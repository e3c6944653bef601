// The start of training: from a checkpoint, from a file of Python's, from weights alone, or from initial weights.
#pragma once

#include <cstdint>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// Loads the checkpoint to resume from, else --resume-from-python, else --init-from, else keeps the initial weights.
// Seeds this rank's generators by --seed-per-rank, before it loads those of a checkpoint. The result's `run` is that of
// a checkpoint in --checkpoint-dir, else a new id. Collective: throws TrainError if the ranks have different data, if a
// batch is larger than the data set, or if training would resume in another order of samples, in other data or after
// their end.
TrainState load_or_begin(const Options& options, const Dataset& train_set, const ModelTensors& model,
                         Optimizer& optimizer, Checkpoints& checkpoints, ProcessGroup& group);

// The steps of the whole run from step 0, with `state` as returned by load_or_begin().
std::int64_t total_steps(const Options& options, const Dataset& train_set, const TrainState& state,
                         const ProcessGroup& group);

}  // namespace torchbridge::train
