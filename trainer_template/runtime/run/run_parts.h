// What a session makes from the options.
#pragma once

#include <optional>

#include <torchbridge/ddp.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>

#include "trainer_template/runtime/training/evaluation.h"
#include "trainer_template/runtime/training/step_profile.h"

namespace torchbridge::train {

// The hook that replaces DDP's all-reduce of gradients: that of --zero 1 with reduce-scatter, or of
// --grad-comm; nothing for DDP's own. The optimizer and the group must outlive the result.
std::optional<CommHook> comm_hook(const Options& options, Optimizer& optimizer,
                                  ProcessGroup& group);

// The peak of this rank's device in TFLOP/s, in the precision of the run: --peak-tflops, or by the
// GPU's name; 0: unknown.
double peak_of(const Options& options, const ProcessGroup& group);

// Collective: all ranks measure the norm if rank 0 writes it, because with ZeRO the norm is a
// collective.
GradientClipping gradient_clipping(const Options& options, const ModelTensors& model,
                                   ProcessGroup& group);

// Collective: throws on all ranks if one cannot open --compiled-eval. `options` and `model` must
// outlive the result.
EvaluationOptions evaluation_options(const Options& options, Model& model, ProcessGroup& group);

// Only rank 0 traces.
StepProfileOptions profile_options(const Options& options, const ProcessGroup& group);

}  // namespace torchbridge::train
