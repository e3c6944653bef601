// TORCHELASTIC_ERROR_FILE, to which a Python worker writes the reason of its failure.
#pragma once

#include <chrono>
#include <string>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// A file name of this rank's own in a folder that only this user can enter (torch-env-UID below
// `parent`, created where it is missing). UID is the user's outside of a user namespace: inside,
// containers give all users one. Nothing is created in the folder. Call it with the user's
// rights, not root's.
Result<std::string> error_file_in(const std::string& parent, const std::string& run_id, int restart,
                                  int rank);

struct ErrorFile {
  Socket folder;  // a descriptor of it, as it is in this process's mount namespace; not open where
                  // there is none
  std::string name;  // of the file in it
};
ErrorFile open_error_folder(const std::string& path);

struct ErrorFileContent {
  std::string text;
  std::chrono::system_clock::time_point written;  // meaningful only where there is a text
};
// The content of the file of that name, at most its first 64 KiB. Empty where it was not written
// since `start`, as a file of the same name may be left from another cluster's run; empty too where
// the file is another user's. Follows no link and waits for no pipe. Call it with the user's
// rights.
ErrorFileContent read_error_file(const Socket& folder, const std::string& name,
                                 std::chrono::system_clock::time_point start);

}  // namespace torchbridge
