// The folder of a run's checkpoints: creates it, locks it for one run, and checks that all ranks
// can save in it.
#pragma once

#include <filesystem>
#include <string>

#include <torchbridge/process_group.h>

#include "bridge/net/socket.h"
#include "trainer_template/runtime/checkpoint_format/file_layer.h"

namespace torchbridge::train {

// The lock of a folder for one run. On a file system without locks a message is printed, and a run
// that starts later takes the folder.
class FolderLock {
 public:
  // Waits up to 5 s. Throws TrainError, also if another run has the lock.
  explicit FolderLock(const std::filesystem::path& folder);
  // Throws TrainError if another run has taken the folder since.
  void check() const;

 private:
  std::filesystem::path folder_;
  std::string holder_;  // this run, as it is in the file
  Socket file_;
};

// Creates the folder if it is missing, locks it, and removes unfinished saves of killed runs; a
// message tells what cannot be removed. A step without DONE gets it if its files are valid, else it
// is renamed to step-N.aside. Not collective: for rank 0. Throws TrainError, also if there are only
// damaged steps without DONE.
FolderLock acquire_folder(const std::filesystem::path& folder, FileLayer& files);

// Waits up to 4 s until this rank sees `path`, which rank 0 sees: a network file system may show it
// late. False if it does not appear.
bool wait_visible(const std::filesystem::path& path);

// Collective. Does once what a save does, and throws TrainError unless all ranks see the folder of
// rank 0 and can write and rename there. Messages tell if its file system does not support syncs or
// links. Leaves nothing behind.
void check_saves(const std::filesystem::path& root, ProcessGroup& group, FileLayer& files);

}  // namespace torchbridge::train
