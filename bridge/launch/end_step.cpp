#include "bridge/launch/end_step.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "bridge/base/random_number.h"

namespace torchbridge {
bool has_step_of_several(const LaunchOrigin& origin) {
  const auto& facts = origin.facts;
  return !origin.is_of_mpirun() && facts && facts->launcher == "slurm" && facts->world_size > 1 &&
         origin.is_seen_in_step && !has_terminal_of_step(origin.environment);
}

namespace {

// REQUIRES: has_step_of_several().
void scancel(const LaunchOrigin& origin, std::string option) {
  std::string step = origin.facts->job_id + "." + origin.facts->step_id;
  std::string name = "scancel";
  char* arguments[] = {name.data(), option.data(), step.data(), nullptr};
  posix_spawn_file_actions_t no_output;
  posix_spawn_file_actions_init(&no_output);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&no_output, descriptor, "/dev/null", O_RDWR, 0);
  }
  pid_t child = 0;
  posix_spawnp(&child, name.c_str(), &no_output, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&no_output);
}

}  // namespace

void end_step(const LaunchOrigin& origin) {
  constexpr int kManyNodes = 1000;
  constexpr std::chrono::milliseconds kStartSpread{500}, kExitDelay{2000},
      kExitDelayUnderMpirun{500};
  if (origin.is_of_mpirun()) return std::this_thread::sleep_for(kExitDelayUnderMpirun);
  if (!has_step_of_several(origin)) return;
  const int nodes = static_cast<int>(origin.facts->nodes.size());
  const int longest_ms = std::min(2000, 2000 * (nodes - 1) / kManyNodes);
  std::this_thread::sleep_for(kStartSpread);
  wait_random_delay(std::chrono::milliseconds(longest_ms));
  scancel(origin, "--quiet");
  std::this_thread::sleep_for(kExitDelay);
}

void continue_step(const LaunchOrigin& origin) { scancel(origin, "--signal=CONT"); }

}  // namespace torchbridge
