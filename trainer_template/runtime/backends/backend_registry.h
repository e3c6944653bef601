// The backends that a process group can be made of: a table by name, which programs and libraries add to.
#pragma once

#include <string>

#include "trainer_template/runtime/backends/backend.h"

namespace torchbridge::train {

// Before a group asks for it. `name` in lower case; gloo, nccl and mpi are there already. Not for several threads at
// once.
void register_backend(const std::string& name, BackendEntry entry);

// Throws TrainError, which says where was looked.
const BackendEntry& find_backend(const std::string& name);

}  // namespace torchbridge::train
