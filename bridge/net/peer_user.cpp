#include "bridge/net/peer_user.h"

#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

// IPv4 or IPv6, in network byte order.
struct PeerAddress {
  sockaddr_in6 storage{};  // large enough for both
  socklen_t size = sizeof storage;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage); }
  bool is_v4() const { return storage.sin6_family == AF_INET; }
  in_port_t port() const { return storage.sin6_port; }  // of sockaddr_in in the same place
  void copy_to(__be32 (&words)[4]) const {
    if (is_v4()) {
      std::memcpy(words, &v4().sin_addr, sizeof words[0]);
    } else {
      std::memcpy(words, &storage.sin6_addr, sizeof words);
    }
  }
  // Also where an IPv6 socket has it.
  std::optional<in_addr_t> as_v4() const {
    if (is_v4()) return v4().sin_addr.s_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&storage.sin6_addr)) return std::nullopt;
    in_addr_t address = 0;
    std::memcpy(&address, storage.sin6_addr.s6_addr + 12, sizeof address);
    return address;
  }
};

// Whether this network namespace has the address.
bool is_own(const PeerAddress& address) {
  const auto v4 = address.as_v4();
  if (v4 && ntohl(*v4) >> 24 == IN_LOOPBACKNET) return true;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;
  bool is_found = false;
  for (const ifaddrs* one = all; one != nullptr && !is_found; one = one->ifa_next) {
    const int family = one->ifa_addr != nullptr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if (v4 && family == AF_INET) {
      is_found = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr == *v4;
    } else if (!v4 && family == AF_INET6) {
      const auto& own = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      is_found = std::memcmp(&own, &address.storage.sin6_addr, sizeof own) == 0;
    }
  }
  freeifaddrs(all);
  return is_found;
}

struct Request {
  nlmsghdr header{};
  inet_diag_req_v2 query{};
};

struct Reply {
  nlmsghdr header{};
  inet_diag_msg socket{};
};

// The end of the connection that has the address `local`; nothing where the kernel finds none. It
// does not find a socket that is bound to an interface.
std::optional<inet_diag_msg> find_end(const PeerAddress& local, const PeerAddress& remote) {
  Request request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.query.sdiag_family = static_cast<__u8>(local.storage.sin6_family);
  request.query.sdiag_protocol = IPPROTO_TCP;
  inet_diag_sockid& socket = request.query.id;
  socket.idiag_sport = local.port();
  socket.idiag_dport = remote.port();
  local.copy_to(socket.idiag_src);
  remote.copy_to(socket.idiag_dst);
  if (!local.is_v4()) socket.idiag_if = local.storage.sin6_scope_id;
  socket.idiag_cookie[0] = socket.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

  const Socket kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  Reply reply;
  if (!kernel.open() ||
      send(kernel.descriptor(), &request, sizeof request, 0) != ssize_t{sizeof request} ||
      recv(kernel.descriptor(), &reply, sizeof reply, MSG_DONTWAIT) < ssize_t{sizeof reply} ||
      reply.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return std::nullopt;
  }
  // Where there is no such connection, the kernel names who listens there.
  if (reply.socket.id.idiag_dport != remote.port()) return std::nullopt;
  return reply.socket;
}

}  // namespace

PeerUser user_of_peer(int connection) {
  PeerAddress own, peer;
  if (getsockname(connection, own.get(), &own.size) != 0 ||
      getpeername(connection, peer.get(), &peer.size) != 0) {
    return PeerUser::kAnotherUser;
  }
  if (!is_own(peer)) return PeerUser::kElsewhere;
  // Where the other end sends no more, its program may be gone, and the kernel says root.
  if (const auto end = find_end(peer, own); end && end->idiag_state == TCP_ESTABLISHED) {
    const bool is_this_user = end->idiag_uid == geteuid() || end->idiag_uid == 0;
    return is_this_user ? PeerUser::kThisUser : PeerUser::kAnotherUser;
  }
  return find_end(own, peer) ? PeerUser::kAnotherUser : PeerUser::kElsewhere;
}

}  // namespace torchbridge
