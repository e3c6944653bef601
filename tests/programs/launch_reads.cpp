// Prints how often a rank reads what it was given, from the start of main() to the end of a run.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include <torchbridge/options.h>
#include <torchbridge/preemption.h>
#include <torchbridge/process_group.h>

#include "bridge/launch/launch_origin.h"

using namespace torchbridge;
using namespace torchbridge::train;

// The linker gives these to all who call EnvMap::required_integer(), this_and_ancestors() and
// innermost_launcher() from other folders (--wrap).
Result<std::int64_t> read_number(const EnvMap*, std::string_view, std::int64_t,
                                 std::int64_t) asm("__real_" NUMBER);
Result<std::int64_t> read_and_count(const EnvMap*, std::string_view, std::int64_t,
                                    std::int64_t) asm("__wrap_" NUMBER);
std::vector<ProcessEntry> walk() asm("__real_" WALK);
std::vector<ProcessEntry> walk_and_count() asm("__wrap_" WALK);
const Launcher* search(const EnvMap&, std::int64_t) asm("__real_" SEARCH);
const Launcher* search_and_count(const EnvMap&, std::int64_t) asm("__wrap_" SEARCH);

namespace {
std::map<std::string, int, std::less<>> reads;
}

Result<std::int64_t> read_and_count(const EnvMap* environment, std::string_view name,
                                    std::int64_t low, std::int64_t high) {
  ++reads[std::string(name)];
  return read_number(environment, name, low, high);
}

std::vector<ProcessEntry> walk_and_count() {
  ++reads["/proc"];
  return walk();
}

const Launcher* search_and_count(const EnvMap& environment, std::int64_t process_id) {
  ++reads["launcher"];
  return search(environment, process_id);
}

int main() {
  const LaunchOrigin origin(EnvMap::from(environ));
  const int code = run_job(
      origin,
      [&] {
        (void)Options().stopping(origin);
        return GroupOptions{};
      },
      [](ProcessGroup&) {});
  std::printf("SLURM_PROCID %d, RANK %d, /proc %d, launcher %d\n", reads["SLURM_PROCID"],
              reads["RANK"], reads["/proc"], reads["launcher"]);
  return code;
}
