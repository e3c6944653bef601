// What is in a checkpoint, put into a model, its optimizer and the random generators.
#pragma once

#include <filesystem>

#include "trainer_template/runtime/checkpoint/select_checkpoint.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// The files of which load_checkpoint() needs every byte, and which may be in memory besides what they are loaded to:
// the weights, where training has room for their gradients, and state that stays where it was read to. None on a GPU,
// where each rank would take as much host memory.
NeededFiles needed_files(Optimizer& optimizer, ProcessGroup& group);

// Loads weights, this rank's part of the optimizer's state and, where the checkpoint was written by as many ranks, the
// generators. The optimizer goes on with its state where it was read to; files without an image are mapped: each rank
// reads what it needs. Collective; throws TrainError, which names the tensor that does not fit.
void load_checkpoint(const SelectedCheckpoint& checkpoint, const ModelTensors& model, Optimizer& optimizer,
                     ProcessGroup& group);

// Loads model weights alone, from a safetensors file or a state_dict of torch.save. Collective.
void init_from(const std::filesystem::path& file, const ModelTensors& model, ProcessGroup& group);

}  // namespace torchbridge::train
