#include "bridge/cli/run_command.h"

#include <cstdio>
#include <cstdlib>

namespace torchbridge {

int run_command(const RunOptions&, const EnvMap&) {
  std::fputs("torchbridge: this build has no agent\n", stderr);
  return EXIT_FAILURE;
}

}  // namespace torchbridge
