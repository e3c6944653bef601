// The backend gloo: TCP connections between CPUs.
#pragma once

#include <torchbridge/train/group/backend.h>

namespace torchbridge::train {

// An entry of the table. Throws TrainError where an interface is not there.
MadeBackend make_gloo(const BackendRequest& request);

}  // namespace torchbridge::train
