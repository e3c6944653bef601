// From options to the parts of a training run.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer_template/runtime/ddp/comm_hooks.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/optim/grad_clip.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/training/evaluation.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/training/step_profile.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// Of the CPU and of a GPU: the latter only once the group is formed.
void seed_generators(const Options& options);

// Collective: throws on all ranks where one cannot read the data, or has data of another size than rank 0 (TrainError,
// which names --data).
std::unique_ptr<Task> open_task(const TaskRegistration& kind, const TaskSettings& settings, ProcessGroup& group);

// The task's model with fresh weights, on the group's device. Collective: throws on all ranks where one has no memory
// for it (TrainError, which names --model).
std::shared_ptr<Model> make_model(const Task& task, const std::string& model, ProcessGroup& group);

// Collective with --zero. The group must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group);

// What DDP reduces gradients with instead of its all-reduce: that of --zero 1 with reduce-scatter, or of --grad-comm;
// nothing: its own. The optimizer and the group must outlive the result.
std::optional<CommHook> comm_hook(const Options& options, Optimizer& optimizer, ProcessGroup& group);

// Of this rank's device in TFLOP/s, in the precision of the run: --peak-tflops, or by the GPU's name; 0: unknown.
double peak_of(const Options& options, const ProcessGroup& group);

// Collective: the norm is measured where rank 0 writes it. With ZeRO that takes all ranks.
GradientClipping gradient_clipping(const Options& options, const ModelTensors& model, ProcessGroup& group);

// Collective: throws on all ranks where one cannot open --compiled-eval. `options` and `model` must outlive the result.
EvaluationOptions evaluation_options(const Options& options, Model& model, ProcessGroup& group);

// Rank 0 traces.
StepProfileOptions profile_options(const Options& options, const ProcessGroup& group);

}  // namespace torchbridge::train
