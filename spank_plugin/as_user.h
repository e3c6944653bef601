// Runs code of slurmstepd, which is root, with the rights of the job's user.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

namespace torchbridge {

struct UserIds {
  uid_t user;
  gid_t group;
};

// Runs `act` in a child process that has the user's rights instead of root's and may take at most
// 256 MiB of memory more than slurmstepd has, and returns its result. False too where `act` throws
// or crashes, where the child cannot be made or waited for, and after `limit`: then the child is
// killed. Waits one more second for its end, and no longer: the kernel cannot end a process that
// reads from a network file system whose server is gone.
bool run_as_user(const UserIds& user, std::chrono::milliseconds limit,
                 const std::function<bool()>& act);

}  // namespace torchbridge
