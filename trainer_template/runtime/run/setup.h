// From options to the parts of a training run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/checkpoint/manifest.h>
#include <torchbridge/train/group/process_group.h>
#include <torchbridge/train/named_tensors.h>
#include <torchbridge/train/optim/optimizer.h>
#include <torchbridge/train/run/options.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/trainer.h>

namespace torchbridge::train {

// Of the CPU and of a GPU: the latter only once the group is formed.
void seed_generators(const Options& options);

// A task, and its model with fresh weights on the group's device.
struct OpenTask {
  std::unique_ptr<Task> task;
  std::shared_ptr<Model> model;
};

// Collective: throws on all ranks where one cannot read the data, has data of another size than rank 0, or no memory for the model (TrainError, which
// names --data or --model).
OpenTask open_task(const TaskKind& kind, const TaskSettings& settings, ProcessGroup& group);

// Gives DDP the communication hook of --grad-comm. Once, before the first step.
void set_grad_comm(const Options& options, DistributedDataParallel& ddp, ProcessGroup& group);

// Collective with --zero. The group must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group);

// Collective: throws on all ranks where one cannot open --compiled-eval. `options`, `model` and `stop` must outlive the result.
TrainerOptions trainer_options(const Options& options, Model& model, ProcessGroup& group, std::int64_t total_steps, StopAgreement& stop);

// Loads what training begins from: the checkpoint to go on from, else --resume-from-python, else --init-from, else nothing: the fresh
// weights. The result's `run` is that of a checkpoint in --checkpoint-dir, else a new id. Seeds this rank's generators
// by --seed-per-rank, before it loads those of a checkpoint. Collective.
Manifest load_start(const Options& options, Checkpoints& checkpoints, const ModelTensors& model, Optimizer& optimizer, ProcessGroup& group);

// Rank 0 traces.
StepProfileOptions profile_options(const Options& options, const ProcessGroup& group);

// Steps that the whole run takes, from its first beginning. Collective: throws TrainError where a batch is larger than the data set, where
// the ranks have different data, or where the run would go on from `start` in another order of samples, in other data (`fingerprint`, of this rank's) or beyond their end.
std::int64_t total_steps(const Options& options, const Dataset& train_set, const std::string& fingerprint, const Manifest& start, ProcessGroup& group);

}  // namespace torchbridge::train
