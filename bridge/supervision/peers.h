// The other agents of a run over several nodes, as the attempt on this node sees them.
#pragma once

#include <poll.h>

#include <chrono>
#include <vector>

#include "bridge/run_values/run_report.h"

namespace torchbridge {

class Peers {
 public:
  virtual ~Peers() = default;

  // What AgentEvents waits for; after each wait it calls carry(), which neither blocks nor forks.
  virtual std::vector<pollfd> poll_entries() const = 0;
  virtual std::chrono::steady_clock::time_point next_deadline() const = 0;
  virtual void carry() = 0;

  // A worker of this node has failed by itself; this agent was asked to end.
  virtual void on_failure(const WorkerReport& worker) = 0;
  virtual void on_stop_signal(int signal) = 0;

  // Child processes of this agent that are no worker's, and stay.
  virtual std::vector<int> helpers() const = 0;

  // What the attempt is to do, given once.
  struct Orders {
    bool stops_workers = false;
    bool stops_after_grace = false;  // only workers that still run then
    // By the launcher's signal, which is about to come to this agent as well.
    bool stops_unless_signalled = false;
    bool begins_exit_barrier = false;
  };
  virtual Orders take_orders() = 0;
};

}  // namespace torchbridge
