// The metadata that torch.distributed.checkpoint (DCP) needs for a tensor that is sharded over
// files.
#pragma once

#include <map>
#include <string>

#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>

namespace torchbridge::train {

// The metadata of one rank's optimizer file, for DCP's HuggingFaceStorageReader: the offset of each
// flat piece of `state` in its flattened parameter. Only "format" if the tensors are not sharded.
// `ranges`: Optimizer::ranges().
std::map<std::string, std::string> shard_metadata(
    const NamedTensors& state, const std::map<std::string, ElementRange>& ranges);

}  // namespace torchbridge::train
