// A port for a job that a test starts.
#pragma once

#include <unistd.h>

#include <stdexcept>

#include "bridge/net/socket.h"

// Nobody listens there on any interface, the kernel gives it to nobody by itself, and no other process that asks this
// way has it until this one and those that it started have ended. From one thread.
inline int free_port() {
  constexpr int kLow = 15'000, kCount = 17'000;  // below the kernel's own range
  static int tried = 0;
  while (tried < kCount) {
    const int port = kLow + (getpid() * 7 + tried++) % kCount;
    if (torchbridge::hold_port(port) && torchbridge::port_is_free(port)) return port;
  }
  throw std::runtime_error("no port in [15000, 32000) is free");
}
