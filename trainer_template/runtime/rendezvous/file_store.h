// A store in a file that all ranks see, for file://.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bridge/core/layout.h"

namespace torchbridge::train {

// The store in the file at `path`, which open_own_file() accepts. The last of the ranks to leave
// removes the file, once all of them have been here; until then it stays, so that a run that was
// killed is noticed. Waits `timeout` for the file's lock. Throws TrainError on rank 0 and
// PeerFailed on the others, who leave the message to it.
c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, const Layout& layout,
                                                std::chrono::milliseconds timeout);

}  // namespace torchbridge::train
