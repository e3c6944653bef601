// The folder of a run's checkpoints: creates it, locks it for one run, and checks that all ranks
// can save in it.
#pragma once

#include <filesystem>

#include <torchbridge/process_group.h>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/checkpoint_format/file_layer.h"

namespace torchbridge::train {

// Creates the folder if it is missing, waits up to 5 s for its lock, and removes unfinished saves
// of killed runs; a message tells what cannot be removed. A step without DONE gets it if its files
// are valid, else it is renamed to step-N.aside. The returned descriptor holds the lock; on a file
// system without locks it holds none, and a message is printed. Not collective: for rank 0. Throws
// TrainError, also if another run has the lock, or if there are only damaged steps without DONE.
Socket acquire_folder(const std::filesystem::path& folder, FileLayer& files);

// Waits up to 4 s until this rank sees `path`, which rank 0 sees: a network file system may show it
// late. False if it does not appear.
bool wait_visible(const std::filesystem::path& path);

// Collective. Does once what a save does, and throws TrainError unless all ranks see the folder of
// rank 0 and can write, sync and rename there. Leaves nothing behind.
void check_saves(const std::filesystem::path& root, ProcessGroup& group, FileLayer& files);

}  // namespace torchbridge::train
