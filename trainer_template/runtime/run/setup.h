// From options to the parts of a training run.
#pragma once

#include <cstdint>
#include <memory>

#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/checkpoint/manifest.h>
#include <torchbridge/train/group/process_group.h>
#include <torchbridge/train/named_tensors.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/run/options.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/trainer.h>

namespace torchbridge::train {

// Seeds the default generator and chooses deterministic algorithms.
void set_determinism(const Options& options);

// The task's model on the device, with fresh weights. Throws TrainError, which names --model, where it does not fit into memory.
std::shared_ptr<Model> make_model(const Task& task, const std::string& model, c10::Device device);

// Collective with --zero. The group must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group);

// Collective: throws on all ranks where one cannot open --compiled-eval. `model` and its `tensors` must outlive the result.
TrainerOptions trainer_options(const Options& options, Model& model, const ModelTensors& tensors, ProcessGroup& group, std::int64_t total_steps);

// Loads what training begins from: the checkpoint to go on from, else --resume-from-python, else --init-from, else nothing: the fresh
// weights. Collective.
Manifest load_start(const Options& options, Checkpoints& checkpoints, const ModelTensors& model, Optimizer& optimizer, ProcessGroup& group);

// Rank 0 traces.
StepProfileOptions profile_options(const Options& options, const ProcessGroup& group);

// Steps that the whole run takes, from its first beginning. Throws TrainError where a batch is larger than the data set, or where the
// run would go on from `start` in another order of samples.
std::int64_t total_steps(const Options& options, const Dataset& train_set, const Manifest& start, const ProcessGroup& group);

}  // namespace torchbridge::train
