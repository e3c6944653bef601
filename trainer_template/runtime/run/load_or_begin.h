// Where training begins: a checkpoint of this training, a file of Python's, weights alone, or nothing.
#pragma once

#include <cstdint>

#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// Loads what training begins from: the checkpoint to go on from, else --resume-from-python, else --init-from, else
// nothing: the fresh weights. Seeds this rank's generators by --seed-per-rank, before it loads those of a checkpoint.
// The result's `run` is that of a checkpoint in --checkpoint-dir, else a new id. Collective: throws TrainError where
// the ranks have different data, a batch is larger than the data set, or training would go on in another order of
// samples, in other data or beyond their end.
TrainState load_or_begin(const Options& options, const Dataset& train_set, const ModelTensors& model,
                         Optimizer& optimizer, Checkpoints& checkpoints, ProcessGroup& group);

// Steps that the whole run takes, from its first beginning, with `state` as load_or_begin() gave it.
std::int64_t total_steps(const Options& options, const Dataset& train_set, const TrainState& state,
                         const ProcessGroup& group);

}  // namespace torchbridge::train
