// Locks and syncs of files, and what a file system cannot do. There are many error codes for that,
// some of which are errors of the data elsewhere, so the first call on each file system tells.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "bridge/net/socket.h"

namespace torchbridge::train {

enum class FileOperation { kSync, kSyncFolder, kLink };

// `error`: what an operation on the file system `device` gave, an errno or 0. True if that
// operation is not supported there: the first one of the process failed, by the same error, and not
// for the disk (EIO, ENOSPC, EDQUOT) or for an error that passes. Any thread.
bool is_unsupported(FileOperation operation, dev_t device, int error);

// Why that operation is not supported in the folder; empty if it is, or was not tried yet.
std::string why_unsupported(FileOperation operation, const std::filesystem::path& folder);

// fsync() of an open file or folder: an errno, or 0, also if the file system does not support it.
int sync_descriptor(int descriptor);

// An advisory lock that keeps a folder or file to one run. The kernel releases it when the process
// ends, however it ends. Locks an open file; its descriptor holds the lock. Waits up to 5 s,
// because a run whose launcher was killed takes a moment to end and the same command may start
// again at once. False if another process still has the lock. Some network file systems cannot
// lock: then it prints a message that names `what`, such as "checkpoint folder 'runs/a'", and
// returns true.
bool lock_file(const Socket& file, const std::string& what);

}  // namespace torchbridge::train
