// Loads a checkpoint into a model, its optimizer and the random generators.
#pragma once

#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "trainer_template/runtime/checkpoint/select_checkpoint.h"

namespace torchbridge::train {

// The files of which load_checkpoint() needs every byte and which may be in memory as a whole: the
// weights, for which there is memory because training needs as much for their gradients, and
// optimizer state that stays in the memory into which it was read. None on a GPU: every rank would
// need as much host memory.
NeededFiles needed_files(Optimizer& optimizer, ProcessGroup& group);

// Loads weights, this rank's part of the optimizer's state and, if as many ranks wrote the
// checkpoint, the generators. The optimizer adopts state that was read into an image. Files without
// an image are mapped: each rank reads the parts that it needs. Collective; throws TrainError,
// which names the tensor that does not fit.
void load_checkpoint(const SelectedCheckpoint& checkpoint, const ModelTensors& model,
                     Optimizer& optimizer, ProcessGroup& group);

// The tensors of a file of the checkpoint, in its mapped memory: not to be written to. None if it
// has no such file.
NamedTensors tensors_of_file(const SelectedCheckpoint& checkpoint, const std::string& file);

// Takes prefixes of wrappers and of other programs' models ("module.", "_orig_mod.",
// "transformer.", "model.") off the names that have them, if the model knows more of the names
// then; or those "NAME.TENSOR" that Session::keep() has saved, if one NAME has all parameters of
// the model. Else the tensors as they are.
NamedTensors fitted_names(const NamedTensors& tensors, const ModelTensors& model);

}  // namespace torchbridge::train
