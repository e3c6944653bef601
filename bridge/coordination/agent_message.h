// What the agents of one run and their coordinator send to each other: one JSON object a line, over TCP, after the
// proof that both belong to the run (connection_proof.h).
//
// An agent sends Join, then Ready for each round that it can take part in, Failed and Ended for the attempt that the
// round began, Stopping in answer to StopWorkers, and Leave where it was asked to end. The coordinator answers with
// Welcome or Rejected, and sends StartRound, StopWorkers, BeginExitBarrier and EndRun. Both send Alive. `torchbridge
// status` gets RunStatus.
//
// What a peer sends is not believed: parse_message gives no number out of its range, and each text that is printed as
// one line without what is no character to show (base/visible_text.h). Texts of several lines, those of `error` and
// `log_end`, hold any bytes: describe() (step/failure.h) shows them.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/run_values/run_report.h"

namespace torchbridge {

// Bytes of a line, without the newline.
inline constexpr std::size_t kLongestLine = 1 << 20;       // of any message but RunStatus
inline constexpr std::size_t kLongestFirstLine = 8 << 10;  // of Join, and before it
inline constexpr std::size_t kLongestStatus = 16 << 20;    // RunStatus of 60,000 nodes
// And of texts.
inline constexpr std::size_t kLongestRunId = 512, kLongestName = 255;

// What all agents of a run are given alike.
struct RunShape {
  int min_nodes = 1, max_nodes = 1, active_nodes = 1, max_restarts = 0;
  bool operator==(const RunShape&) const = default;
};

struct Join {
  std::string run_id;  // at most kLongestRunId bytes
  RunShape shape;
  std::string host;
  int pid = 0;  // that the user sees: of the guardian
  int workers = 1;
  int order = -1;    // position among the agents that the launcher or --node-rank gives; -1: none
  std::string node;  // agents with the same text are on one node and number their ranks together; empty: a node alone
};
// The agent runs no worker, and has bound a port for the store, should rank 0 be its own.
struct Ready {
  Endpoint store;
};
// The first failure of this agent's workers in the attempt.
struct Failed {
  WorkerReport worker;
};
// The answer to StopWorkers: what made the coordinator send it was not that this agent is lost.
struct Stopping {};
// No worker of the attempt runs any more, or this agent cannot take part in the next one (start_error).
struct Ended {
  AttemptReport report;     // of this agent's workers alone
  bool can_restart = true;  // false: a worker cannot be ended, or none could be started
  std::string start_error;  // why none could be started, with `start_exit_code`; or empty
  int start_exit_code = 0;  // from 1 where there is a start_error, else 0
};
// A user or the launcher ends this agent: its workers are ending.
struct Leave {
  int signal = 0;
};
// Nothing else was sent for an interval. Clocks are seconds since 1970: that of the sender, and in an answer the one
// that it answers; 0: none.
struct Alive {
  double clock = 0, answered_clock = 0;
};

struct Welcome {
  double keep_alive_interval = 5;  // seconds
  int keep_alive_attempts = 3;     // intervals without a message after which the other side is lost
};
struct Rejected {
  std::string reason;
  double retry_seconds = 0;  // the reason may pass within this time; 0: it does not
};
struct StartRound {
  int round = 0;  // from 0, also those that begin because nodes come and go
  int node_rank = 0, node_count = 1;
  int first_rank = 0, world_size = 1;
  int first_local_rank = 0, local_world_size = 1;
  Endpoint store;
  int restart_count = 0, max_restarts = 0;
};
struct StopWorkers {
  std::string reason;        // as EndRun's
  bool after_grace = false;  // workers are about to end by themselves: only those that run --grace later are ended
};
struct BeginExitBarrier {};
struct EndRun {
  int exit_code = 0;
  std::string reason;  // for users who do not see what the coordinator prints; or empty
};
struct RunStatus {
  std::string json;
};

using AgentMessage = std::variant<Join, Ready, Failed, Stopping, Ended, Leave, Alive, Welcome, Rejected, StartRound,
                                  StopWorkers, BeginExitBarrier, EndRun, RunStatus>;

// With a newline at the end and none before it. Bytes that are no UTF-8 are replaced. Of Failed and Ended, texts are
// cut and in the end failures left out, the last ones first, where the line would be longer than kLongestLine.
std::string line_of(const AgentMessage& message);

// `line` has no newline. An error for anything that no agent sends, as a number that is out of its range or a text that
// is too long.
Result<AgentMessage> parse_message(std::string_view line);

}  // namespace torchbridge
