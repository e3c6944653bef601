// A Launch as Python's init methods take it.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>

#include "bridge/launch/launch.h"

namespace torchbridge::python {

// listen_fd belongs to the caller; -1 where the store binds the port itself.
inline pybind11::dict dict_of(Result<Launch> launch) {
  if (!launch) throw std::runtime_error(launch.error().message);
  pybind11::dict found;
  found["rank"] = launch->env.layout.rank;
  found["world_size"] = launch->env.layout.world_size;
  found["local_rank"] = launch->env.layout.local_rank;
  found["host"] = launch->env.master.host;
  found["port"] = launch->env.master.port;
  found["agent_store"] = launch->env.use_agent_store;
  found["listen_fd"] = launch->store_socket.open() ? launch->store_socket.release() : -1;
  return found;
}

}  // namespace torchbridge::python
