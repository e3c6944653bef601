// A port for a job that a test starts.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "bridge/net/socket.h"

// An abstract unix socket, open until this process and those that it started have ended.
inline bool hold_test_port(int port) {
  sockaddr_un address{AF_UNIX, {}};
  const auto length = ("torchbridge-test/" + std::to_string(port)).copy(address.sun_path + 1, 64);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  torchbridge::Socket name(socket(AF_UNIX, SOCK_STREAM, 0));
  if (bind(name.descriptor(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return false;
  (void)name.release();
  return true;
}

// Nobody listens there on any interface, the kernel gives it to nobody by itself, and no other
// process that asks this way has it until this one and those that it started have ended. From one
// thread.
inline int free_port() {
  constexpr int kLow = 15'000, kCount = 17'000;  // below the kernel's own range
  static int tried = 0;
  while (tried < kCount) {
    const int port = kLow + (getpid() * 7 + tried++) % kCount;
    if (hold_test_port(port) && torchbridge::port_is_free(port)) return port;
  }
  throw std::runtime_error("no port in [15000, 32000) is free");
}
