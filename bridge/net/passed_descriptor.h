// A descriptor that one process gives to another through a unix socket (unix(7), SCM_RIGHTS).
#pragma once

#include <cstdint>
#include <optional>

#include "bridge/net/socket.h"

namespace torchbridge {

struct PassedDescriptor {
  Socket descriptor;
  std::uint32_t number = 0;  // the sender's own
};

// `to` is one end of a socketpair of type SOCK_SEQPACKET. Does not wait: false where there is no
// room.
bool pass_descriptor(const Socket& to, int descriptor, std::uint32_t number);

// The next descriptor from the other end. Does not wait: nothing where there is none. Close-on-exec
// is set.
std::optional<PassedDescriptor> take_descriptor(const Socket& from);

}  // namespace torchbridge
