// Prints what resolve_launch finds, one line a rank; then becomes the program in its arguments, if
// there is one.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "bridge/launch/launch.h"

int main(int argc, char** argv) {
  using namespace torchbridge;
  LaunchSettings settings;
  settings.timeout = std::chrono::seconds(20);
  if (argc > 1 && argv[1] == std::string_view("--short")) {
    settings.timeout = std::chrono::milliseconds(500);
    --argc;
  }
  if (argc > 1) settings.store_socket = StoreSocket::kReserved;
  const LaunchOrigin origin(EnvMap::from(environ));
  const auto launch = resolve_launch(origin, settings);
  if (!launch) {
    std::fprintf(stderr, "rank %d: %s\n", origin.rank, launch.error().message.c_str());
    return 1;
  }
  const TorchEnv& env = launch->env;
  const Layout& at = env.layout;
  std::printf("%s rank %d/%d local %d/%d node %d/%d store %s:%d %s %s\n", launch->launcher.c_str(),
              at.rank, at.world_size, at.local_rank, at.local_world_size, at.node_rank,
              at.node_count, env.master.host.c_str(), env.master.port,
              launch->store_socket.open() ? "bound" : "-", env.run_id.c_str());
  std::fflush(stdout);
  if (argc == 1) return 0;
  execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
