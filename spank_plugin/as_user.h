// What slurmstepd does with the rights of the job's user.
#pragma once

#include <sys/types.h>

#include <functional>

namespace torchbridge {

struct UserIds {
  uid_t user;
  gid_t group;
};

// What `act` returns in a child that has given up root's rights for the user's, and that is ended after three seconds.
// False too where it failed or took too long. A child that even the kernel cannot end, because it reads from a server
// that is gone, is left to itself a second later.
bool run_as_user(const UserIds& user, const std::function<bool()>& act);

}  // namespace torchbridge
