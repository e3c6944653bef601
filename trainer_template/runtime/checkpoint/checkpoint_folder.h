// The folder that a run keeps its checkpoints in: made, owned by one run, seen by all ranks.
#pragma once

#include <filesystem>
#include <string>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/process_group/process_group.h"

namespace torchbridge::train {

// Makes the folder (0700) where it is not there, waits some seconds for its lock, and removes what killed runs left
// unfinished; steps without DONE get it where they are whole, and are put aside where not. The descriptor that is
// returned holds the lock; a file system without locks goes without, with a line. Not collective: of rank 0. Throws
// TrainError, also when another run has the lock, or where there is nothing but damaged steps without DONE.
Socket acquire_folder(const std::filesystem::path& folder);

// Whether this rank sees what rank 0 sees there. A network file system may take seconds to show it: so long is waited.
bool wait_visible(const std::filesystem::path& path);

// Collective: whether all ranks see the folder of rank 0 and may write to it.
void check_shared(const std::filesystem::path& folder, ProcessGroup& group);

}  // namespace torchbridge::train
