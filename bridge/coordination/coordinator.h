// What follows for a run over several nodes when agents join, fail and are lost: a state machine
// without sockets.
#pragma once

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bridge/coordination/agent_message.h"
#include "bridge/coordination/coordination_time.h"
#include "bridge/run_values/run_report.h"

namespace torchbridge {

struct CoordinatorRules {
  RunShape shape;
  std::string run_id;
  // Why nodes may not find this one, for the line that some are missing; or empty.
  std::string doubt;
  std::chrono::duration<double> restart_backoff{};
  std::chrono::duration<double> join_timeout{600};  // for min_nodes
  std::chrono::duration<double> last_call_timeout{
      30};  // for more than min_nodes, before the first round
  Welcome keep_alive;
};

// Who it is that joined: the sender's number of the connection, from 1, which no other has at the
// same time.
using MemberId = int;

// Rounds begin one after the other: each waits for agents, assigns ranks, and lasts until no worker
// of it runs. A round ends early when a worker fails, which uses a restart, and when an agent that
// takes part is lost or leaves, or one joins and a node is wanted, which uses none. The state of
// the run is in this object alone, so that it ends with the process that holds it. All times are
// passed in. One thread.
class Coordinator {
 public:
  using Time = CoordinationTime;

  // `report` has program, run_id and host; `restarts`: those that the run has used before.
  Coordinator(CoordinatorRules rules, RunReport report, int restarts, Time now);

  // What happened, in the order in which it was seen.
  void join(MemberId member, const Join& join, Time now);
  // Of a member that has joined; messages that an agent does not send are ignored.
  void receive(MemberId member, const AgentMessage& message, Time now);
  // The connection is gone. `how`: "closed its connection" or the like.
  enum class HowLost { kClosed, kSilent };
  void lose(MemberId member, HowLost how_lost, const std::string& how, Time now);
  // After the end of the run, which it may still read, the member has sent nothing for as long as
  // one that is lost. `how`: as of lose().
  void report_silent(MemberId member, const std::string& how);
  // The clock of the member less this process's, in seconds, and how far it may be off.
  void set_clock(MemberId member, double difference, double error);
  // This process was asked to end the run.
  void stop(int signal, Time now);
  // This process cannot take part, or go on.
  void fail(const std::string& reason) { end_run(EXIT_FAILURE, reason); }
  // No further round begins: another process is to coordinate.
  void hold() { is_held_ = true; }
  bool has_workers() const { return running_ > 0; }
  void pass_time(Time now);
  Time next_deadline() const;  // for pass_time; max() where there is none

  // What is to be sent, and who is to be disconnected after it; what is to be printed. Each is
  // given once.
  struct Outgoing {
    MemberId to = 0;
    AgentMessage message;
    bool disconnects = false;
  };
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }

  bool has_ended() const { return phase_ == Phase::kEnded; }
  const Welcome& keep_alive() const { return rules_.keep_alive; }
  int most_nodes() const { return rules_.shape.max_nodes; }
  int restarts_used() const { return restarts_; }
  // With all attempts so far, and the exit code when the run has ended.
  const RunReport& report() const { return report_; }
  // Members that were not asked to end, but for the given one.
  bool has_others_that_stay(const Join& one) const;
  // Agents that were lost and have not joined again; silent ones may still run, as one that is
  // stopped.
  bool has_lost() const { return !lost_.empty(); }
  bool has_silent_lost() const;
  // For `torchbridge status`: {"run_id", "phase", "round", "restarts", "max_restarts", "nodes":
  // [...], "last_failure"}.
  std::string status_json() const;

 private:
  enum class Phase { kJoining, kRunning, kStopping, kEnded };
  // Why a round that did not end by itself ends.
  enum class Cause { kNone, kFailure, kMembership, kUser };
  struct JoinedAgent {
    Join join;
    std::optional<Endpoint> store;  // given: it is ready for a round
    int slot = -1;                  // in the round before or now
    bool runs = false;              // has workers in this round
    bool is_leaving = false;
    bool is_stopping = false;  // has answered StopWorkers
    int first_rank = -1;
    double clock_difference = 0, clock_error = 0;
  };

  std::optional<Rejected> reason_to_reject(const Join& join) const;
  void wait_for_agents(Time now);
  void try_to_begin(Time now);
  Time next_round_at() const;
  void begin_round();
  struct StopReason {
    std::string text;
    bool is_signal = false;  // as StopWorkers::for_signal
  };
  void stop_round(Cause cause, const StopReason& reason, MemberId but = -1);
  void end_workers_of(MemberId member, const AttemptEnded& ended);
  void send_away(MemberId member, const AttemptEnded& ended);
  void conclude(Time now);
  void end_run(int exit_code, const std::string& reason);
  // The one place where these facts of a member change: a step of thousands of agents must not
  // count them each time.
  void set_store(JoinedAgent& member, std::optional<Endpoint> store);
  void set_runs(JoinedAgent& member, bool runs);
  std::string nodes_text() const;  // that are ready, and that are not
  void remove(MemberId member);
  void send(MemberId member, AgentMessage message) {
    outgoing_.push_back({member, std::move(message)});
  }
  void add_line(std::string line) { lines_.push_back(std::move(line)); }

  CoordinatorRules rules_;
  RunReport report_;
  Phase phase_ = Phase::kJoining;
  std::map<MemberId, JoinedAgent> members_;
  std::map<int, MemberId> by_order_;                     // those that have an order
  std::map<std::pair<std::string, int>, HowLost> lost_;  // by host and process
  int ready_ = 0, running_ = 0;  // members with `store`, and that run workers
  int participants_ = 0;         // members with a slot
  int workers_ = 0;              // of all members
  int leaving_ = 0;
  int restarts_ = 0;
  int stop_signal_ = 0;
  bool is_held_ = false;
  std::string last_failure_;

  // Of the round that is gathered: when it began to be, when it may begin at the earliest, and when
  // min_nodes were there.
  Time joining_since_, not_before_;
  std::optional<Time> enough_since_;
  bool has_reported_missing_ = false;

  // Of the round that runs.
  int round_ = -1;
  Cause cause_ = Cause::kNone;
  AttemptReport attempt_;
  std::set<std::string> unended_on_;           // hosts of processes that did not end after SIGKILL
  std::optional<StartFailure> start_failure_;  // the first, with its host
  Time round_began_;

  std::vector<Outgoing> outgoing_;
  std::vector<std::string> lines_;
};

}  // namespace torchbridge
