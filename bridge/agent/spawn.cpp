#include "bridge/agent/spawn.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bridge/agent/agent.h"
#include "bridge/step/failure.h"

namespace torchbridge {

int spawn(int count, const std::function<int(int rank)>& body, RunOptions options) {
  options.nproc_per_node = {WorkersPerNode::Kind::kNumber, count};
  std::fflush(nullptr);
  // The agent waits for all of its children: those of the caller are not its business.
  const pid_t parent = getpid();
  const pid_t agent = fork();
  if (agent < 0) {
    std::fprintf(stderr, "torchbridge: cannot start the agent: %s\n", std::strerror(errno));
    return EXIT_FAILURE;
  }
  if (agent == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    const auto of_rank = [&body] { return body(std::atoi(std::getenv("RANK"))); };
    _exit(run_agent(options, LaunchOrigin(EnvMap::from(environ)), of_rank));
  }
  // The agent gets ctrl-C too, and leaves the ranks their time: as system(3) does.
  const auto interrupt = std::signal(SIGINT, SIG_IGN), quit = std::signal(SIGQUIT, SIG_IGN);
  int status = 0;
  while (waitpid(agent, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, interrupt);
  std::signal(SIGQUIT, quit);
  return exit_code_of(status);
}

}  // namespace torchbridge
