// Going on with a training that began in Python.
#pragma once

#include <filesystem>

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// Loads weights and the optimizer's state from a file of torch.save({"model": model.state_dict(), "optimizer":
// optimizer.state_dict(), ...}), without executing anything, and returns how far training was: from "step", "epoch",
// "epoch_samples_consumed" and "samples_seen" where these are there (without "step", the optimizer's largest "step" is
// taken), and from "scaler", a GradScaler's state_dict; what cannot be one of these numbers is an error. Options of the
// optimizer are this run's, not the file's; maximize must be the same. Every rank reads the file, and keeps its part.
// Collective; throws TrainError, which names file and tensor, where something does not fit; model and optimizer may
// have changed then.
TrainState resume_from_python(const std::filesystem::path& file, const ModelTensors& model, Optimizer& optimizer,
                              ProcessGroup& group);

}  // namespace torchbridge::train
