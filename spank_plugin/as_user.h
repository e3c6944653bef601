// What slurmstepd does with the rights of the job's user.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace torchbridge {

// Calls `act` in a child that has given up root's rights for the user's and that is ended after three seconds. Returns its text; empty
// where there is none, where it failed or took too long.
std::string run_as_user(uid_t user, gid_t group, const std::function<std::string()>& act);

}  // namespace torchbridge
