#include "trainer_template/runtime/base/failpoint.h"

#ifdef TORCHBRIDGE_FAILPOINTS

#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bridge/base/env_map.h"

namespace torchbridge::train {
namespace {

constexpr std::array<std::string_view, 19> kPhases = {
    "start", "bind",     "publish",  "heartbeat", "join",  "verdict", "connect",
    "step",  "evaluate", "snapshot", "write",     "fsync", "rename",  "directory-fsync",
    "DONE",  "prune",    "exit",     "gpu",       "left"};

struct Plan {
  std::string phase;  // empty: none
  bool counts = false;
  std::array<std::atomic<std::int64_t>, kPhases.size()> hits{};
  int signal = SIGKILL;
  std::atomic<std::int64_t> left{0};
};

Plan& plan();

void write_counts() {
  std::string line = "failpoints:";
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    line += " " + std::string(kPhases[i]) + ":" + std::to_string(plan().hits[i]);
  std::fprintf(stderr, "%s\n", line.c_str());
}

[[noreturn]] void reject(const char* text) {
  std::fprintf(stderr,
               "TORCHBRIDGE_FAIL='%s': expected PHASE:N, PHASE:N:stop or count; failpoint.h lists "
               "the phases\n",
               text);
  std::_Exit(2);
}

void read(Plan& plan) {
  const char* const text = std::getenv("TORCHBRIDGE_FAIL");
  if (text == nullptr) return;
  if (std::string_view(text) == "count") {
    plan.counts = std::atexit(write_counts) == 0;
    return;
  }
  std::string_view rest = text;
  if (rest.ends_with(":stop")) {
    plan.signal = SIGSTOP;
    rest.remove_suffix(5);
  }
  const std::size_t colon = rest.find(':');
  if (colon == std::string_view::npos) reject(text);
  const auto count = parse_integer(rest.substr(colon + 1), 1, 1'000'000'000);
  plan.phase = rest.substr(0, colon);
  bool known = false;
  for (const std::string_view phase : kPhases) known = known || phase == plan.phase;
  if (!count || !known) reject(text);
  plan.left = *count;
}

Plan& plan() {
  static Plan one;
  static const bool once = (read(one), true);
  static_cast<void>(once);
  return one;
}

}  // namespace

void failpoint(const char* phase) {
  Plan& planned = plan();
  if (planned.counts) ++planned.hits[std::ranges::find(kPhases, phase) - kPhases.begin()];
  if (planned.phase.empty() || planned.phase != phase) return;
  if (planned.left.fetch_sub(1) == 1) raise(planned.signal);
}

}  // namespace torchbridge::train

#else

void torchbridge::train::failpoint(const char*) {}

#endif
