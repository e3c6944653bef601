// The folder of a run's checkpoints: creates it, locks it for one run, and checks that all ranks see it.
#pragma once

#include <filesystem>
#include <string>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

// Creates the folder (0700) if it is missing, waits up to 5 s for its lock, and removes unfinished saves of killed
// runs. A step without DONE gets it if its files are valid, else it is renamed to step-N.aside. The returned descriptor
// holds the lock; on a file system without locks it holds none, and a message is printed. Not collective: for rank 0.
// Throws TrainError, also if another run has the lock, or if there are only damaged steps without DONE.
Socket acquire_folder(const std::filesystem::path& folder);

// Waits up to 4 s until this rank sees `path`, which rank 0 sees: a network file system may show it late. False if it
// does not appear.
bool wait_visible(const std::filesystem::path& path);

// Collective. Throws TrainError unless all ranks see the folder of rank 0 and may write to it.
void check_shared(const std::filesystem::path& folder, ProcessGroup& group);

}  // namespace torchbridge::train
