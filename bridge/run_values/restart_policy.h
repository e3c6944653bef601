// Whether a run goes on after an attempt has ended: a pure function.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace torchbridge {

inline constexpr int kRequeueExitCode = 75;  // EX_TEMPFAIL: checkpointed, and requests a requeue

// How one worker ended; only those that ended by themselves count, not those that the agent ended because of another.
struct WorkerEnd {
  int rank = 0;
  int wait_status = 0;  // as waitpid gives it
  std::string message;  // of its error file, or empty
};

// One attempt.
struct AttemptEnd {
  std::vector<WorkerEnd> failures;           // the root cause first; empty: all workers ended with 0
  std::chrono::duration<double> lifetime{};  // up to the first failure, where there is one
  bool can_restart = true;                   // false: a process of it cannot be ended, or no worker could be started
};

struct RestartRules {
  int max_restarts = 0;
  std::chrono::duration<double>
      backoff{};        // before the first restart, doubled for each further one, up to kLongestBackoff
  int stop_signal = 0;  // the agent was asked to end; 0: it was not
};
inline constexpr std::chrono::duration<double> kLongestBackoff{60};

struct Decision {
  enum class Next { kEnd, kRestart } next = Next::kEnd;
  int exit_code = 0;                      // of the run, with kEnd
  std::string reason;                     // with kEnd and a failure: why there is no restart
  std::chrono::duration<double> delay{};  // with kRestart
};

// `attempts` are those of this agent, the last one last; `restarts` are all that the run has used, also under an agent
// before this one. A crash loop, which ends the run early: kCrashLoop attempts in a row fail with the same exit code or
// signal and, but for numbers in it, the same message within kAtOnce of their start, in whichever rank; what others do
// to a worker (SIGKILL, SIGTERM) is no such failure.
inline constexpr int kCrashLoop = 3;
inline constexpr std::chrono::duration<double> kAtOnce{10};
Decision decide(const std::vector<AttemptEnd>& attempts, int restarts, const RestartRules& rules);

// The exit code of a shell: 128+signal.
int exit_code_of(int wait_status);

}  // namespace torchbridge
