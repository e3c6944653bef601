// A program that starts its own ranks with spawn(): spawn_ranks COUNT EXIT_CODE_OF_THE_LAST.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bridge/agent/spawn.h"
#include "bridge/launch/launch.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int count = std::atoi(argv[1]), last_code = std::atoi(argv[2]);
  const int code = torchbridge::spawn(count, [&](int rank) {
    const auto launch = torchbridge::resolve_launch(torchbridge::EnvMap::from(environ));
    if (!launch) return 1;
    std::printf("rank %d of %d\n", launch->env.layout.rank, launch->env.layout.world_size);
    return rank == count - 1 ? last_code : 0;
  });
  std::printf("ended with %d\n", code);
  return code;
}
