// Everything that an agent waits for, in one place: signals, its guardian, the output of workers,
// and time.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "bridge/start/preloaded_python.h"
#include "bridge/supervision/peers.h"
#include "bridge/supervision/signal_descriptor.h"
#include "bridge/supervision/worker_streams.h"

namespace torchbridge {

using SteadyTime = std::chrono::steady_clock::time_point;

struct ReceivedSignal {
  int number = 0;
  bool workers_have_it = false;  // from its sender (signal_sender.h)
};

struct Events {
  bool has_child = false;                      // a child has ended, stopped or continued
  bool is_guardian_gone = false;               // reported once
  std::vector<ReceivedSignal> stop_signals;    // that end the run, in their order
  std::vector<ReceivedSignal> passed_signals;  // that are for the workers alone
};

class AgentEvents {
 public:
  // `guardian`: the descriptor of run_guarded, or -1. `liveness`: a listening socket that answers
  // each connection with "200 OK" in HTTP, or not open. An error where a descriptor cannot be
  // opened.
  static Result<AgentEvents> open(const std::vector<int>& stop_signals, int guardian,
                                  Socket liveness);

  // Carries output until something happens or the deadline has passed. `streams` may be null.
  // Calls carry() of the peers and of the Python, where there are any.
  Events wait(SteadyTime deadline, WorkerStreams* streams, Consoles& consoles);

  SignalDescriptor& signals() { return signals_; }
  bool is_stop_signal(int signal) const;
  bool has_signal() const;  // that wait() has not taken
  // From now on; null: none. It must outlive this object or the next call.
  void set_peers(Peers* peers) { peers_ = peers; }
  void set_python(PreloadedPython* python) { python_ = python; }

 private:
  AgentEvents(SignalDescriptor signals, std::vector<int> stop_signals, int guardian,
              Socket liveness);
  void read_signals(Events& events);
  bool is_repeated(const signalfd_siginfo& signal);
  void answer_liveness() const;

  SignalDescriptor signals_;
  std::vector<int> stop_signals_;
  int guardian_;
  Socket liveness_;
  Peers* peers_ = nullptr;
  PreloadedPython* python_ = nullptr;
  struct Last {
    SteadyTime time;
    std::uint32_t sender = 0;  // a pid
  };
  std::map<int, Last> last_;  // by signal: the last one that counted
};

}  // namespace torchbridge
