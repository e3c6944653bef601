// Loads a checkpoint into a model, its optimizer and the random generators.
#pragma once

#include <filesystem>

#include "trainer_template/runtime/checkpoint/select_checkpoint.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// The files of which load_checkpoint() needs every byte and which may be in memory as a whole: the weights, for which
// there is memory because training needs as much for their gradients, and optimizer state that stays in the memory into
// which it was read. None on a GPU: every rank would need as much host memory.
NeededFiles needed_files(Optimizer& optimizer, ProcessGroup& group);

// Loads weights, this rank's part of the optimizer's state and, if as many ranks wrote the checkpoint, the generators.
// The optimizer adopts state that was read into an image. Files without an image are mapped: each rank reads the parts
// that it needs. Collective; throws TrainError, which names the tensor that does not fit.
void load_checkpoint(const SelectedCheckpoint& checkpoint, const ModelTensors& model, Optimizer& optimizer,
                     ProcessGroup& group);

// Loads only the model's weights, from a safetensors file or a state_dict of torch.save. Collective.
void init_from(const std::filesystem::path& file, const ModelTensors& model, ProcessGroup& group);

}  // namespace torchbridge::train
