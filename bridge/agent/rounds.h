// What an agent does next, and who decides it: the agent itself on one node (local_rounds.h), the
// coordinator of the run over several (node_rounds.h).
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/host/exec_arguments.h"
#include "bridge/net/socket.h"
#include "bridge/run_values/run_report.h"
#include "bridge/supervision/worker_environment.h"

namespace torchbridge {

// Start these workers.
struct Round {
  int number = 0;  // of the run, from 0: names the folder of the attempt
  AttemptFacts facts;
  Socket store_port;  // bound, for rank 0 to listen on; not open where rank 0 is on another node
};

// The run is over.
struct RunEnd {
  int exit_code = 0;
  std::string message;  // for the user; empty: none
  // Of all attempts; nothing where another agent has it, or no worker has run.
  std::optional<RunReport> report{};
  // Agents of the run may not have ended, as one that is stopped: a launcher would wait for them.
  bool leaves_agents = false;
};

class Rounds {
 public:
  virtual ~Rounds() = default;
  // Waits for it, and heeds the signals that end the run meanwhile. After a round only when
  // conclude() was called.
  virtual std::variant<Round, RunEnd> next() = 0;
  // All workers of the round have ended.
  virtual void conclude(const AttemptReport& attempt) = 0;
  // They could not be started.
  virtual void conclude(const StartFailure& failure) = 0;
};

// The port on which rank 0 of an attempt serves the store.
struct StoreReservation {
  Socket socket;     // bound, not listening
  Endpoint address;  // numeric
};

// A port of its own for each attempt, so that none finds the store of another: `port`, or a free
// one where it is 0. An error names `option` where `host`, its value, is no address of this host,
// and --master-port where the port is in use. `own` is as in reserve().
Result<StoreReservation> reserve_store(const std::string& host, int port, const std::string& option,
                                       int own = -1);

}  // namespace torchbridge
