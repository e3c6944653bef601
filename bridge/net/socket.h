// Sockets that own their descriptors: to listen, to reserve a port, to connect.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// Owns one descriptor; closes it unless it was released. Movable, not copyable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // The caller owns the descriptor from here on.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};
// Of a numeric IPv4 or IPv6 address and a port.
Result<SocketAddress> socket_address(const Endpoint& endpoint);

// Binds to the numeric address (IPv4 or IPv6) and port, and listens. Port 0 lets the kernel choose:
// ask bound_port. Close-on-exec is set. An error names address, port and reason.
Result<Socket> listen_on(const Endpoint& address);

// Binds without listening a port that no other socket of this network namespace has, of any user
// and at any address, listening or not. Connections whose programs have ended, but which still
// linger, do not count; while some do, of the sockets that share their address only those that
// listen are seen, and who listens later gets the error. The kernel gives the port to no other
// program, but a program that is configured to listen there, as PyTorch's store, still can (both
// set SO_REUSEADDR). Stays open over exec, and is none of the three standard descriptors. For a
// program that is to inherit it. Port 0 lets the kernel choose one.
// `own`: a descriptor of this process that may have the port already, as one that it has inherited;
// or -1. `is_shared`: sockets that others have reserved do not count.
Result<Socket> reserve(const Endpoint& address, int own = -1, bool is_shared = false);
// Whether reserve() would get the port now.
bool port_is_free(int port);

// Names of this user in the kernel's table, and no files: abstract unix sockets that listen, in
// this network namespace. `key` is of any length. Any process can take any name, also one with this
// user's id in it, so that each key has several: what other users hold is passed over. Who knows
// the key can take all of them: where that is to be ruled out, the key has a secret.

// Only one process of this user holds a key until it, and what it becomes by exec, has ended. False
// where another process holds it; true again in one that does, and where other users hold all
// names. From one thread.
bool claim_name(const std::string& key);
// The id of the process that called claim_name(); it may have ended since, or be 0 in another
// namespace of ids. Nothing where no process of this user holds the key.
std::optional<int> holder_of_name(const std::string& key);

// Close-on-exec and O_NONBLOCK are set. An error where other sockets have all names or, to connect,
// where no process of this user listens.
Result<Socket> listen_on_name(const std::string& key);
Result<Socket> connect_to_name(const std::string& key);
// Whether the process at the other end of a unix socket is this user's.
bool is_of_this_user(const Socket& peer);

// A socket that the process's parent reserved for it, now listening; nothing where `descriptor` is
// not a socket bound to `port`. Close-on-exec is set.
std::optional<Socket> inherit(int descriptor, int port);

// Connects to a numeric address, waiting at most `timeout`. Close-on-exec is set. An error names
// address, port and reason.
Result<Socket> connect_to(const Endpoint& address, std::chrono::milliseconds timeout);

// Begins to connect and does not wait: the socket is writable when the connection is made or has
// failed, and connected() then returns which. Close-on-exec and O_NONBLOCK are set.
Result<Socket> begin_connecting(const Endpoint& address);
Status connected(const Socket& socket, const Endpoint& address);
// The error for an address that cannot be reached, with the text of the errno `error`.
Error cannot_connect(const Endpoint& address, int error);

// The numeric address that it is bound to; nothing where it has none.
std::optional<std::string> bound_host(const Socket& socket);
// That of the other end of a connection.
std::optional<std::string> peer_host(const Socket& socket);
// REQUIRES: socket.open().
Result<int> bound_port(const Socket& socket);

}  // namespace torchbridge
