// Whose program is at the other end of a TCP connection within this host.
#pragma once

namespace torchbridge {

enum class PeerUser {
  kThisUser,     // or root
  kAnotherUser,  // also where it has closed the connection, or hides its socket
  kElsewhere     // on another host or in another network namespace, or the kernel does not tell
};

// The user of the socket at the other end, as the kernel has it (sock_diag(7), inet_diag).
// REQUIRES: the other end has sent something; until a program has accepted the connection, the
// kernel says root.
PeerUser user_of_peer(int connection);

}  // namespace torchbridge
