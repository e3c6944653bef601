// Whether a run goes on after an attempt has ended: a pure function.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bridge/run_values/run_report.h"

namespace torchbridge {

struct RestartRules {
  int max_restarts = 0;
  // Before the first restart, doubled for each further one, up to kLongestBackoff.
  std::chrono::duration<double> backoff{};
  int stop_signal = 0;  // the agent was asked to end; 0: it was not
};
inline constexpr std::chrono::duration<double> kLongestBackoff{60};

struct Decision {
  enum class Next { kEnd, kRestart } next = Next::kEnd;
  int exit_code = 0;                      // of the run, with kEnd
  std::string reason;                     // with kEnd and a failure: why there is no restart
  std::chrono::duration<double> delay{};  // with kRestart
};

// `attempts` are those of this agent, the last one last, of which an interruption is no failure;
// `restarts` are all that the run has used, also under an agent before this one. Workers that the
// agent ended because of another do not count. A crash loop, which ends the run early: kCrashLoop
// failed attempts in a row fail with the same exit code or signal and, but for numbers in it, the
// same message within kAtOnce of their start, in whichever rank; what others do to a worker
// (SIGKILL, SIGTERM) is no such failure.
inline constexpr int kCrashLoop = 3;
inline constexpr std::chrono::duration<double> kAtOnce{10};
Decision decide(const std::vector<AttemptReport>& attempts, int restarts,
                const RestartRules& rules);

}  // namespace torchbridge
