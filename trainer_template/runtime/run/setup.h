// Makes the parts of a training run from the options.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer_template/runtime/ddp/comm_hooks.h"
#include "trainer_template/runtime/optim/grad_clip.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/training/evaluation.h"
#include "trainer_template/runtime/training/step_profile.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// Seeds the generators of the CPU and of the GPU; before the group is formed, only that of the CPU.
void seed_generators(const Options& options);

// Collective: throws on all ranks if one cannot read the data, or has data of another size than rank 0. TrainError
// names
// --data.
std::unique_ptr<Task> open_task(const TaskRegistration& kind, const TaskSettings& settings, ProcessGroup& group);

// The task's model with initial weights, on the group's device. Collective: throws on all ranks if one has not enough
// memory for it. TrainError names --model.
std::shared_ptr<Model> make_model(const Task& task, const std::string& model, ProcessGroup& group);

// Collective with --zero. The group must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const Options& options, const ModelTensors& model, ProcessGroup& group);

// The hook that replaces DDP's all-reduce of gradients: that of --zero 1 with reduce-scatter, or of --grad-comm;
// nothing for DDP's own. The optimizer and the group must outlive the result.
std::optional<CommHook> comm_hook(const Options& options, Optimizer& optimizer, ProcessGroup& group);

// The peak of this rank's device in TFLOP/s, in the precision of the run: --peak-tflops, or by the GPU's name; 0:
// unknown.
double peak_of(const Options& options, const ProcessGroup& group);

// Collective: all ranks measure the norm if rank 0 writes it, because with ZeRO the norm is a collective.
GradientClipping gradient_clipping(const Options& options, const ModelTensors& model, ProcessGroup& group);

// Collective: throws on all ranks if one cannot open --compiled-eval. `options` and `model` must outlive the result.
EvaluationOptions evaluation_options(const Options& options, Model& model, ProcessGroup& group);

// Only rank 0 traces.
StepProfileOptions profile_options(const Options& options, const ProcessGroup& group);

}  // namespace torchbridge::train
