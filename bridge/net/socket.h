// A listening TCP socket that owns its descriptor.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "bridge/core/endpoint.h"
#include "bridge/base/result.h"

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

// Binds to the numeric address (IPv4 or IPv6) and port, and listens. Port 0 lets the kernel choose: ask bound_port.
// Close-on-exec is set. An error names address, port and reason.
Result<Socket> listen_on(const Endpoint& address);

// Binds without listening: other programs of this host cannot be given the port by chance, but one that is told to
// listen there, as PyTorch's store, still can (both set SO_REUSEADDR). Stays open over exec, and is none of the three
// standard descriptors. For a program that shall inherit it.
Result<Socket> reserve(const Endpoint& address);

// Only one process of this network namespace holds a name (at most 90 bytes) until it, and what it becomes by exec, has
// ended: an abstract unix socket. False where another process holds it; true again in one that does. From one thread.
bool hold_name(const std::string& name);

// Abstract unix sockets, which are names in the kernel's table and no files, of this user's processes in this network
// namespace. `key` is of any length. Close-on-exec and O_NONBLOCK are set; an error where somebody has the name, or
// nobody.
Result<Socket> listen_on_name(const std::string& key);
Result<Socket> begin_connecting_to_name(const std::string& key);
// Whether the process at the other end of a unix socket is this user's.
bool is_of_this_user(const Socket& peer);

// Keeps other programs that reserve ports this way from the same one, which bind alone does not (both set
// SO_REUSEADDR).
bool hold_port(int port);

// A socket that was reserved for this process by whoever started it, now listening; nothing where `descriptor` is no
// socket bound to `port`. Close-on-exec is set.
std::optional<Socket> inherit(int descriptor, int port);

// Connects to a numeric address, waiting at most `timeout`. Close-on-exec is set. An error names address, port and
// reason.
Result<Socket> connect_to(const Endpoint& address, std::chrono::milliseconds timeout);

// Begins to connect and does not wait: the socket is ready to be written to when that worked or failed, and connected
// then tells which. Close-on-exec and O_NONBLOCK are set.
Result<Socket> begin_connecting(const Endpoint& address);
Status connected(const Socket& socket, const Endpoint& address);
// What is said where the address is not reached, `error` being errno's.
Error cannot_connect(const Endpoint& address, int error);

// Whether a program that listens on all interfaces of this host, as PyTorch's store does, could have the port now.
bool port_is_free(int port);

// The numeric address that it is bound to; nothing where it has none.
std::optional<std::string> bound_host(const Socket& socket);
// REQUIRES: socket.open().
Result<int> bound_port(const Socket& socket);

}  // namespace torchbridge
