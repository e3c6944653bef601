// What the agents of one run and their coordinator send to each other: one JSON object a line, over
// TCP, after the proof that both belong to the run (connection_proof.h).
//
// An agent sends Join, then Ready for each round that it can take part in, WorkerFailed and
// AttemptEnded for the attempt that the round began, Stopping in answer to StopWorkers, and Leave
// where it was asked to end. The coordinator answers with Welcome or Rejected, and sends
// StartRound, StopWorkers, BeginExitBarrier and EndRun. Both send Alive. `torchbridge status` gets
// RunStatus.
//
// What a peer sends is not believed: parse_message gives no number out of its range, and each text
// that is printed as one line without what is no character to show (base/visible_text.h). Texts of
// several lines, those of `error` and `log_end`, hold any bytes: describe() (step/failure.h) shows
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/host/exec_arguments.h"
#include "bridge/run_values/run_report.h"
#include "bridge/run_values/worker_ranks.h"

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
  std::string node;  // agents with the same text are on one node and number their ranks together;
                     // empty: a node alone
  std::string role = "default";  // of its workers, who have ranks among those of their role
};
// The agent runs no worker, and has bound a port for the store, should rank 0 be its own.
struct Ready {
  Endpoint store;
};
// The first failure of this agent's workers in the attempt.
struct WorkerFailed {
  WorkerReport worker;
};
// The answer to StopWorkers: what made the coordinator send it was not that this agent is lost.
struct Stopping {};
// No worker of the attempt runs any more, or this agent cannot take part in the next one.
struct AttemptEnded {
  AttemptReport report;                         // of this agent's workers alone
  std::optional<StartFailure> start_failure{};  // why none could be started
};
// A user or the launcher ends this agent: its workers are ending.
struct Leave {
  int signal = 0;
};
// Nothing else was sent for an interval. Clocks are seconds since 1970: that of the sender, and in
// an answer the one that it answers; 0: none.
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
  WorkerRanks ranks;
  Endpoint store;
  int restart_count = 0, max_restarts = 0;
};
struct StopWorkers {
  std::string reason;  // as EndRun's
  // Workers are about to end by themselves: only those that run --grace later are ended.
  bool after_grace = false;
  bool for_signal = false;  // an agent got a signal: a launcher gives it to each agent
};
struct BeginExitBarrier {};
struct EndRun {
  int exit_code = 0;
  std::string reason;  // for users who do not see what the coordinator prints; or empty
};
struct RunStatus {
  std::string json;
};

using AgentMessage =
    std::variant<Join, Ready, WorkerFailed, Stopping, AttemptEnded, Leave, Alive, Welcome, Rejected,
                 StartRound, StopWorkers, BeginExitBarrier, EndRun, RunStatus>;

// With a newline at the end and none before it. Bytes that are no UTF-8 are replaced. Of
// WorkerFailed and AttemptEnded, texts are cut and in the end failures left out, the last ones
// first, where the line would be longer than kLongestLine.
std::string line_of(const AgentMessage& message);

// `line` has no newline. An error for anything that no agent sends, as a number that is out of its
// range or a text that is too long.
Result<AgentMessage> parse_message(std::string_view line);

}  // namespace torchbridge
