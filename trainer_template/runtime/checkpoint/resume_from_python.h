// Resumes a training that began in Python.
#pragma once

#include <filesystem>

#include "trainer_template/runtime/base/train_state.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// Loads weights and the optimizer's state from a file of torch.save({"model": model.state_dict(), "optimizer":
// optimizer.state_dict(), ...}), without executing anything, and returns the progress: "step", "epoch",
// "epoch_samples_consumed" and "samples_seen", as far as they are present, and "scaler", a GradScaler's state_dict.
// Without "step" it is the optimizer's largest "step". A value that cannot be one of these numbers is an error. The
// optimizer keeps the options of this run; only `maximize` must be equal. Every rank reads the file and keeps its part.
// Collective; throws TrainError, which names file and tensor, if something does not fit; model and optimizer may have
// changed then.
TrainState resume_from_python(const std::filesystem::path& file, const ModelTensors& model, Optimizer& optimizer,
                              ProcessGroup& group);

}  // namespace torchbridge::train
