// --generate and --predict: a trained model put to use.
#pragma once

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/options/options.h"

namespace torchbridge::train {

// With the weights of --init-from, or of the newest good checkpoint in --checkpoint-dir or --resume, whose --model it
// takes unless the user gave one, and whose --data, where that is still there. Collective; rank 0 prints. Throws
// TrainError.
void run_inference(const Options& options, ProcessGroup& group);

}  // namespace torchbridge::train
