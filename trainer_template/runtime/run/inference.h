// Inference with a trained model: --generate and --predict.
#pragma once

#include <torchbridge/options.h>
#include <torchbridge/process_group.h>

namespace torchbridge::train {

// Uses the weights of --init-from, or of --resume, or of the newest valid checkpoint in
// --checkpoint-dir. Task, model and data are those of the checkpoint unless the user gave --task,
// --model or --data; the checkpoint's data must still exist. Collective; rank 0 prints. Throws
// TrainError.
void run_inference(const Options& options, ProcessGroup& group);

}  // namespace torchbridge::train
