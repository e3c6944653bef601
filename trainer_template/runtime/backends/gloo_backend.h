// The backend gloo: TCP connections between CPUs, and memory that the ranks of one node share.
#pragma once

#include "trainer_template/runtime/backends/backend.h"

namespace torchbridge::train {

// An entry of the table. Throws TrainError for an unknown interface.
MadeBackend make_gloo(const BackendRequest& request);

// Whether it is gloo and its small collectives go over shared memory.
bool shares_memory(const c10d::Backend& backend);

}  // namespace torchbridge::train
