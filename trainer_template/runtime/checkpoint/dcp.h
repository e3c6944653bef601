// What torch.distributed.checkpoint must be told about a tensor that is spread over files.
#pragma once

#include <map>
#include <string>

#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

// The metadata of one rank's optimizer file, for DCP's HuggingFaceStorageReader: where in its flattened parameter each
// flat piece of `state` begins. Format "pt" alone where the tensors are whole. `ranges`: Optimizer::ranges().
std::map<std::string, std::string> shard_metadata(const NamedTensors& state,
                                                  const std::map<std::string, ElementRange>& ranges);

}  // namespace torchbridge::train
