// What slurmstepd does with the rights of the job's user.
#pragma once

#include <sys/types.h>

#include <functional>

namespace torchbridge {

// Calls `act` in a child that has given up root's rights for the user's, and that is ended after three seconds. False
// where it failed or took too long. A child that even the kernel cannot end, because it reads from a server that is
// gone, is left to itself a second later.
bool run_as_user(uid_t user, gid_t group, const std::function<void()>& act);

}  // namespace torchbridge
