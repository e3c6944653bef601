#include "bridge/net/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <set>

#include "bridge/base/env_map.h"
#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/net/host_names.h"

namespace torchbridge {
namespace {

// All ranks of a large job connect within a moment; the kernel caps it at net.core.somaxconn.
constexpr int kBacklog = 4096;

// As many as one key has.
constexpr int kNames = 64;

SocketAddress address_of_key(const std::string& key, int number) {
  SocketAddress address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  // Everybody can read the name, and nobody the key from it.
  constexpr int kDigits = 32;
  const std::string digest = hex_of(sha256(std::to_string(number) + " " + key));
  const int length = std::snprintf(local.sun_path + 1, sizeof local.sun_path - 1,
                                   "torchbridge/%u/%.*s", geteuid(), kDigits, digest.c_str());
  address.size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) + static_cast<socklen_t>(length);
  return address;
}

bool connects(const Socket& socket, const SocketAddress& address) {
  return connect(socket.descriptor(), address.get(), address.size) == 0;
}

// Of a name that is taken. Before the holder listens nobody can tell whose it is: it has a moment
// to do so.
bool is_held_by_this_user(const SocketAddress& name) {
  constexpr int kMilliseconds = 10;
  for (int i = 0; i < kMilliseconds; ++i) {
    const Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connects(socket, name)) return is_of_this_user(socket);
    if (errno != ECONNREFUSED) return false;
    poll(nullptr, 0, 1);
  }
  return false;
}

// Nothing where the kernel does not tell it.
std::optional<ucred> peer_of(const Socket& socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return std::nullopt;
  return credentials;
}

std::string advice(int error) {
  if (error == EADDRINUSE)
    return ": another program uses it; choose another port, or end that program";
  if (error == EADDRNOTAVAIL) return ": no interface of this host has that address";
  if (error == EACCES) return ": ports below 1024 need privileges";
  return "";
}

Error cannot_listen(const Endpoint& address, int error) {
  return {formatted("cannot listen on {} port {}: {}{}", address.host, address.port,
                    std::strerror(error), advice(error))};
}

// A copy of the descriptor above the standard ones: where standard input is closed, a program that
// inherits number 0 would read from it. Not open where the number is above already.
Socket above_standard(const Socket& socket) {
  constexpr int kFirst = STDERR_FILENO + 1;
  return Socket(socket.descriptor() >= kFirst ? -1 : fcntl(socket.descriptor(), F_DUPFD, kFirst));
}

void share_port(const Socket& socket) {
  const int yes = 1;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

Result<Socket> bind_to(const Endpoint& address, int flags) {
  const auto target = socket_address(address);
  if (!target) return target.error();
  Socket socket(::socket(target->family(), SOCK_STREAM | flags, 0));
  if (!socket.open()) return cannot_listen(address, errno);
  // Connections of an earlier run that still linger must not keep the port. A free port is one that
  // no other socket has, also none that would share it.
  if (address.port != 0) share_port(socket);
  if (bind(socket.descriptor(), target->get(), target->size) != 0)
    return cannot_listen(address, errno);
  if (address.port == 0) share_port(socket);
  return socket;
}

// Whether all that the kernel lists for the port are connections whose programs have ended, as
// those in TIME_WAIT of an earlier run. What is bound and does not listen is not listed.
bool only_lingers(int port) {
  bool lingers = false;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::FILE* file = std::fopen(path, "re");
    char line[512];
    while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
      unsigned local = 0, inode = 0;
      // "  0: 0100007F:8249 0100007F:C6C8 06 00000000:00000000 03:00001770 00000000     0        0
      // 0 3 ..."
      const int fields =
          std::sscanf(line, "%*d: %*[^:]:%x %*s %*s %*s %*s %*s %*s %*s %u", &local, &inode);
      if (fields != 2 || local != static_cast<unsigned>(port)) continue;
      lingers = inode == 0;
      if (!lingers) break;
    }
    const bool has_owner = file != nullptr && std::feof(file) == 0;
    if (file != nullptr) std::fclose(file);
    if (has_owner) return false;
  }
  return lingers;
}

// The port at all addresses, IPv4 and IPv6. Not shared, the kernel refuses it where any other
// socket has it. Not open, and errno set, where it cannot be had.
Socket bind_everywhere(int port, bool is_shared) {
  for (const char* everywhere : {"::", "0.0.0.0"}) {  // the latter where the kernel has no IPv6
    const auto address = socket_address({everywhere, port});
    Socket socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.open() && errno == EAFNOSUPPORT) continue;
    if (!socket.open()) break;
    const int no = 0;
    if (address->family() == AF_INET6)
      setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (is_shared) share_port(socket);
    if (bind(socket.descriptor(), address->get(), address->size) == 0) return socket;
    if (errno != EADDRNOTAVAIL) break;
  }
  return Socket();
}

// The port at all addresses. Not open, and errno set, where another socket has it.
Socket hold_port(int port, bool is_shared) {
  Socket holder = bind_everywhere(port, false);
  if (holder.open() || errno != EADDRINUSE) return holder;
  if (is_shared || only_lingers(port)) return bind_everywhere(port, true);
  errno = EADDRINUSE;
  return holder;
}

// `name` is getsockname or getpeername; of no family where it fails.
SocketAddress address_given_by(int (*name)(int, sockaddr*, socklen_t*), const Socket& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (name(socket.descriptor(), address.get(), &address.size) != 0) return {};
  return address;
}

std::optional<std::string> host_of(const SocketAddress& address) {
  auto text = address_text(address.get());
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

Result<SocketAddress> socket_address(const Endpoint& endpoint) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (inet_pton(AF_INET, endpoint.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    address.size = sizeof v4;
  } else if (inet_pton(AF_INET6, endpoint.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    address.size = sizeof v6;
  } else {
    return Error{formatted("address '{}': expected a numeric IPv4 or IPv6 address",
                           printable(endpoint.host))};
  }
  v4.sin_port = htons(static_cast<std::uint16_t>(endpoint.port));  // that of IPv6 is in its place
  return address;
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (open()) close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

Socket::~Socket() {
  if (open()) close(descriptor_);
}

Result<Socket> listen_on(const Endpoint& address) {
  auto socket = bind_to(address, SOCK_CLOEXEC);
  if (socket && listen(socket->descriptor(), kBacklog) != 0) return cannot_listen(address, errno);
  return socket;
}

Result<Socket> reserve(const Endpoint& address, int own, bool is_shared) {
  Socket holder(fcntl(own, F_DUPFD_CLOEXEC, 0));
  auto port = bound_port(holder);
  if (!port || address.port == 0 || *port != address.port) {
    // Held until the socket for the program is bound too, so that none comes between.
    holder = hold_port(address.port, is_shared);
    if (!holder.open()) return cannot_listen(address, errno);
    share_port(holder);
    port = bound_port(holder);
    if (!port) return port.error();
  }
  auto socket = bind_to({address.host, *port}, 0);
  if (!socket) return socket;
  auto moved = above_standard(*socket);
  return moved.open() ? std::move(moved) : std::move(*socket);
}

bool port_is_free(int port) { return hold_port(port, false).open() || errno != EADDRINUSE; }

bool claim_name(const std::string& key) {
  static std::set<std::string> held;
  if (held.contains(key)) return true;
  for (int number = 0; number < kNames; ++number) {
    const SocketAddress name = address_of_key(key, number);
    Socket socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    if (auto moved = above_standard(socket); moved.open()) socket = std::move(moved);
    if (bind(socket.descriptor(), name.get(), name.size) == 0) {
      (void)listen(socket.descriptor(), kBacklog);
      held.insert(key);
      (void)socket.release();
      return true;
    }
    if (errno == EADDRINUSE && is_held_by_this_user(name)) return false;
  }
  return true;
}

std::optional<int> holder_of_name(const std::string& key) {
  const auto connection = connect_to_name(key);
  if (!connection) return std::nullopt;
  return peer_of(*connection)->pid;
}

std::optional<Socket> inherit(int descriptor, int port) {
  Socket reserved(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!reserved.open()) return std::nullopt;
  const auto bound = bound_port(reserved);
  const auto host = bound && *bound == port ? bound_host(reserved) : std::nullopt;
  if (!host) return std::nullopt;
  // A second socket instead of listen() on the inherited one: another process that inherited it
  // too, as a shell, would keep it listening after this process, and the shell's next program could
  // not listen.
  auto socket = listen_on({*host, port});
  if (!socket) return std::nullopt;
  close(descriptor);
  return std::move(*socket);
}

Result<Socket> listen_on_name(const std::string& key) {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  for (int number = 0; number < kNames; ++number) {
    const SocketAddress name = address_of_key(key, number);
    if (bind(socket.descriptor(), name.get(), name.size) != 0) continue;
    if (listen(socket.descriptor(), kBacklog) == 0) return socket;
    break;
  }
  return Error{std::strerror(errno)};
}

Result<Socket> connect_to_name(const std::string& key) {
  Socket socket;
  for (int number = 0; number < kNames; ++number) {
    if (!socket.open())
      socket = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!connects(socket, address_of_key(key, number))) continue;
    if (is_of_this_user(socket)) return socket;
    socket = Socket();
  }
  return Error{std::strerror(ECONNREFUSED)};
}

bool is_of_this_user(const Socket& peer) {
  const auto credentials = peer_of(peer);
  return credentials && credentials->uid == geteuid();
}

Error cannot_connect(const Endpoint& address, int error) {
  return {formatted("cannot connect to {} port {}: {}", address.host, address.port,
                    std::strerror(error))};
}

Result<Socket> begin_connecting(const Endpoint& address) {
  const auto target = socket_address(address);
  if (!target) return target.error();
  Socket socket(::socket(target->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return cannot_connect(address, errno);
  if (connect(socket.descriptor(), target->get(), target->size) != 0 && errno != EINPROGRESS)
    return cannot_connect(address, errno);
  return socket;
}

Status connected(const Socket& socket, const Endpoint& address) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return cannot_connect(address, error);
  return Ok{};
}

Result<Socket> connect_to(const Endpoint& address, std::chrono::milliseconds timeout) {
  auto socket = begin_connecting(address);
  if (!socket) return socket;
  pollfd ready{socket->descriptor(), POLLOUT, 0};
  const int count = poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(timeout.count(), 1)));
  if (count <= 0) return cannot_connect(address, count == 0 ? ETIMEDOUT : errno);
  if (const auto reached = connected(*socket, address); !reached) return reached.error();
  fcntl(socket->descriptor(), F_SETFL, fcntl(socket->descriptor(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

std::optional<std::string> bound_host(const Socket& socket) {
  return host_of(address_given_by(getsockname, socket));
}

std::optional<std::string> peer_host(const Socket& socket) {
  return host_of(address_given_by(getpeername, socket));
}

Result<int> bound_port(const Socket& socket) {
  const SocketAddress address = address_given_by(getsockname, socket);
  if (address.size == 0)
    return Error{std::string("cannot read the port of a socket: ") + std::strerror(errno)};
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

}  // namespace torchbridge
