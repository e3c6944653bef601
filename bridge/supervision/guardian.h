// A process that outlives the agent, so that nothing of a run outlives both.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace torchbridge {

// What the agent has of its guardian: two descriptors.
struct GuardianLink {
  int end = -1;  // to be polled: readable, at its end, when the guardian is killed
  // Takes the path of a folder that the guardian is to remove where the agent is killed.
  int folder = -1;
};

// Runs `agent` in a child, forwards signals to it (SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1,
// SIGUSR2 and `forwarded`) and returns its exit code. A signal that the child gets itself as well
// (signal_sender.h) is forwarded kSignalSpread later, so that it is the second of the two. The
// calling process is the guardian: when the child is killed, all of its descendants are, also those
// that left their session; and when the guardian is killed, the child sees it at GuardianLink::end.
// A child that is killed by a signal gives 128+signal and one line. `ends_process`: the caller ends
// after it, and the signals stay blocked. REQUIRES: the process has one thread.
int run_guarded(const std::vector<int>& forwarded, bool ends_process,
                const std::function<int(const GuardianLink&)>& agent);

// Ends by SIGKILL the children of this process but those in `kept`, and the children that it
// inherits from them as a subreaper (PR_SET_CHILD_SUBREAPER). Waits at most kKillDeadline for them;
// returns the pids that are left, which are in uninterruptible sleep. REQUIRES: SIGCHLD is blocked.
inline constexpr std::chrono::seconds kKillDeadline{10};
std::vector<int> kill_descendants(const std::vector<int>& kept = {});

}  // namespace torchbridge
