// The table of backends by name, to which programs and libraries add.
#pragma once

#include <string>

#include "trainer_template/runtime/backends/backend.h"

namespace torchbridge::train {

// Must be called before a group uses `name`, which is in lower case; gloo, nccl and mpi are registered already. Not
// thread-safe.
void register_backend(const std::string& name, BackendEntry entry);

// Throws TrainError, which names the library that was searched.
const BackendEntry& find_backend(const std::string& name);

}  // namespace torchbridge::train
