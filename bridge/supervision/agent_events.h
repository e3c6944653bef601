// Everything that an agent waits for, in one place: signals, its guardian, the output of workers, and time.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "bridge/supervision/peers.h"
#include "bridge/supervision/signal_descriptor.h"
#include "bridge/supervision/worker_streams.h"

namespace torchbridge {

using SteadyTime = std::chrono::steady_clock::time_point;

struct Events {
  bool has_child = false;           // a child has ended, stopped or continued
  bool is_guardian_gone = false;    // reported once
  std::vector<int> stop_signals;    // that end the run, in their order
  std::vector<int> passed_signals;  // that are for the workers alone
};

class AgentEvents {
 public:
  // `guardian`: the descriptor of run_guarded, or -1. `liveness`: a listening socket that answers each connection with
  // "200 OK" in HTTP, or not open. An error where a descriptor cannot be opened.
  static Result<AgentEvents> open(const std::vector<int>& stop_signals, int guardian, Socket liveness);

  // Carries output until something happens or the deadline has passed. `streams` may be null.
  // Calls peers.carry() where there are peers.
  Events wait(SteadyTime deadline, WorkerStreams* streams, Consoles& consoles);

  SignalDescriptor& signals() { return signals_; }
  // From now on; null: none. It must outlive this object or the next call.
  void set_peers(Peers* peers) { peers_ = peers; }

 private:
  AgentEvents(SignalDescriptor signals, std::vector<int> stop_signals, int guardian, Socket liveness);
  void read_signals(Events& events);
  void answer_liveness() const;

  SignalDescriptor signals_;
  std::vector<int> stop_signals_;
  int guardian_;
  Socket liveness_;
  Peers* peers_ = nullptr;
  struct Interrupt {
    SteadyTime time;
    std::uint32_t sender = 0;  // a pid
  };
  std::optional<Interrupt> interrupted_;  // the last SIGINT
};

}  // namespace torchbridge
