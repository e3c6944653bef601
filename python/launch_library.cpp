// How this process was started, for Python by ctypes, so that one file serves each version of
// Python. No MPI.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "bridge/base/env_map.h"
#include "python/launch_settings.h"

// As python/torchbridge/launch.py declares it.
extern "C" struct TorchbridgeLaunch {
  int rank, world_size, local_rank, port;
  int agent_store;
  int listen_fd;  // belongs to the caller; -1 where the store binds the port itself
  char host[256];
  char error[4096];  // empty without an error
};

namespace {

template <std::size_t kSize>
void copy(char (&target)[kSize], const char* text) {
  std::snprintf(target, kSize, "%s", text);
}

torchbridge::Launch launch(const char* scheme, double seconds, const char* options) {
  const auto method = torchbridge::parse_init_method(std::string(scheme) + "://");
  if (!method) throw std::runtime_error(method.error().message);
  auto found = torchbridge::resolve_launch(
      *method, {}, torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)),
      torchbridge::python::settings_of(seconds, options));
  if (!found) throw std::runtime_error(found.error().message);
  return std::move(*found);
}

}  // namespace

// `scheme` is "slurm" or "pmix", as the init method of that name. Each call is collective.
extern "C" __attribute__((visibility("default"))) void torchbridge_launch(
    const char* scheme, double seconds, const char* options, TorchbridgeLaunch* answer) {
  *answer = {};
  answer->listen_fd = -1;
  try {
    torchbridge::Launch found = launch(scheme, seconds, options);
    answer->rank = found.env.layout.rank;
    answer->world_size = found.env.layout.world_size;
    answer->local_rank = found.env.layout.local_rank;
    answer->port = found.env.master.port;
    answer->agent_store = found.env.use_agent_store;
    copy(answer->host, found.env.master.host.c_str());
    if (found.store_socket.open()) answer->listen_fd = found.store_socket.release();
  } catch (const std::exception& error) {
    copy(answer->error, error.what()[0] ? error.what() : "unknown error");
  }
}
