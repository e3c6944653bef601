#include "bridge/coordination/coordinator.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/coordination/round_plan.h"
#include "bridge/core/launch_facts.h"
#include "bridge/run_values/restart_policy.h"

namespace torchbridge {
namespace {

using Seconds = std::chrono::duration<double>;
using OrderedJson = nlohmann::ordered_json;

std::string name_of(const Join& join) { return formatted("{} (pid {})", join.host, join.pid); }

std::string loss_line(const Join& join, const std::string& how) {
  return formatted("node {} is lost: it {}", name_of(join), how);
}

std::string text_of(const RunShape& shape) {
  std::string text = "--nnodes " + std::to_string(shape.min_nodes);
  if (shape.max_nodes != shape.min_nodes) text += ":" + std::to_string(shape.max_nodes);
  if (shape.active_nodes != shape.max_nodes)
    text += " --active " + std::to_string(shape.active_nodes);
  return text + " --max-restarts " + std::to_string(shape.max_restarts);
}

}  // namespace

Coordinator::Coordinator(CoordinatorRules rules, RunReport report, int restarts, Time now)
    : rules_(std::move(rules)), report_(std::move(report)), restarts_(restarts) {
  wait_for_agents(now);
}

std::optional<Rejected> Coordinator::reason_to_reject(const Join& join) const {
  // A node that is gone, and is not yet known to be, may be why no node is wanted.
  const double until_lost =
      rules_.keep_alive.keep_alive_interval * (rules_.keep_alive.keep_alive_attempts + 1);
  if (join.run_id != rules_.run_id) {
    return Rejected{
        formatted("run '{}' has this endpoint, and this is run '{}': give one of them another "
                  "--rdzv-endpoint, or both the same --rdzv-id",
                  printable(rules_.run_id), printable(join.run_id))};
  }
  if (phase_ == Phase::kEnded)
    return Rejected{formatted("the run '{}' has ended: for another run give another --rdzv-id",
                              printable(rules_.run_id))};
  if (join.shape != rules_.shape) {
    return Rejected{formatted("it was given {}, and {} {}: give all nodes the same",
                              text_of(join.shape), report_.host, text_of(rules_.shape))};
  }
  if (const auto same = by_order_.find(join.order); same != by_order_.end()) {
    return Rejected{formatted("node rank {} is that of {}: give each node another --node-rank",
                              join.order, name_of(members_.at(same->second).join)),
                    until_lost};
  }
  if (static_cast<int>(members_.size()) >= rules_.shape.max_nodes) {
    return Rejected{
        formatted("the run '{}' has its {} ({}): for another run give another --rdzv-id and "
                  "--rdzv-endpoint",
                  printable(rules_.run_id), counted(rules_.shape.max_nodes, "node"), nodes_text()),
        until_lost};
  }
  if (join.workers > kMaxRanks - workers_) {
    return Rejected{
        formatted("the run would have more than {} ranks: give fewer workers with --nproc-per-node",
                  kMaxRanks)};
  }
  return std::nullopt;
}

void Coordinator::join(MemberId id, const Join& join, Time now) {
  if (const auto rejected = reason_to_reject(join)) {
    outgoing_.push_back({id, *rejected, true});
    return;
  }
  members_[id].join = join;
  lost_.erase(std::pair(join.host, join.pid));
  workers_ += join.workers;
  if (join.order >= 0) by_order_[join.order] = id;
  send(id, rules_.keep_alive);
  pass_time(now);
}

void Coordinator::receive(MemberId id, const AgentMessage& message, Time now) {
  const auto found = members_.find(id);
  if (found == members_.end() || phase_ == Phase::kEnded) return;
  JoinedAgent& member = found->second;
  if (const auto* ready = std::get_if<Ready>(&message); ready && !member.is_leaving) {
    set_store(member, ready->store);
    const bool is_new = member.slot < 0;
    if (phase_ == Phase::kRunning && is_new && participants_ < rules_.shape.active_nodes) {
      stop_round(Cause::kMembership, {formatted("node {} has joined", name_of(member.join))});
    }
  } else if (const auto* failed = std::get_if<WorkerFailed>(&message)) {
    if (member.runs) stop_round(Cause::kFailure, {first_line(failed->worker)}, id);
  } else if (std::holds_alternative<Stopping>(message)) {
    member.is_stopping = phase_ == Phase::kStopping;
  } else if (const auto* ended = std::get_if<AttemptEnded>(&message)) {
    member.runs ? end_workers_of(id, *ended) : send_away(id, *ended);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    if (!std::exchange(member.is_leaving, true)) ++leaving_;
    set_store(member, std::nullopt);
    by_order_.erase(member.join.order);
    const bool is_too_late = cause_ == Cause::kFailure && member.is_stopping;  // as in lose()
    if (member.runs && !is_too_late) {
      stop_round(
          Cause::kMembership,
          {formatted("node {} leaves after signal {}", name_of(member.join), leave->signal), true},
          id);
    }
  }
  pass_time(now);
}

// It cannot take part, for a reason of its own; the others go on.
void Coordinator::send_away(MemberId id, const AttemptEnded& ended) {
  if (!ended.start_failure) return;
  const auto& [exit_code, error] = *ended.start_failure;
  add_line(formatted("node {} cannot take part: {}", name_of(members_.at(id).join), error.message));
  outgoing_.push_back({id, EndRun{exit_code, error.message}, true});
  remove(id);
}

void Coordinator::end_workers_of(MemberId id, const AttemptEnded& ended) {
  JoinedAgent& member = members_.at(id);
  set_runs(member, false);
  if (!ended.report.can_restart) unended_on_.insert(member.join.host);
  if (ended.start_failure && !start_failure_) {
    start_failure_ = ended.start_failure;
    start_failure_->error.message = member.join.host + ": " + ended.start_failure->error.message;
    // Else the first of the workers that are ended because of it would be the root cause.
    if (cause_ == Cause::kNone)
      last_failure_ = attempt_.interruption = start_failure_->error.message;
  }
  const auto shift = std::chrono::duration_cast<std::chrono::system_clock::duration>(
      Seconds(member.clock_difference));
  for (WorkerReport worker : ended.report.failures) {
    worker.time -= shift;
    worker.not_before -= shift;
    worker.clock = report_.host;
    worker.time_error = member.clock_error;
    attempt_.failures.push_back(std::move(worker));
  }
  const auto& failures = ended.report.failures;
  if (cause_ != Cause::kNone) return;
  if (failures.empty() && !ended.start_failure) {
    for (const auto& [other, each] : members_) {
      if (each.runs) send(other, BeginExitBarrier{});
    }
  } else if (!ended.start_failure &&
             std::ranges::all_of(failures, wants_requeue, &WorkerReport::wait_status)) {
    const StopWorkers stop{
        formatted("workers on {} ended with exit code 75: a requeue is requested",
                  member.join.host),
        true};
    for (const auto& [other, each] : members_) {
      if (each.runs) send(other, stop);
    }
  } else {
    stop_round(Cause::kFailure,
               {failures.empty() ? start_failure_->error.message : first_line(failures.front())});
  }
}

void Coordinator::lose(MemberId id, HowLost how_lost, const std::string& how, Time now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const JoinedAgent member = found->second;
  remove(id);
  if (phase_ == Phase::kEnded) return;
  const std::string what = loss_line(member.join, how);
  if (!member.is_leaving) {
    add_line(what);
    lost_[{member.join.host, member.join.pid}] = how_lost;
  }
  // It was there after the failure that stopped the round, so it is not what the workers failed of.
  const bool is_too_late = cause_ == Cause::kFailure && member.is_stopping;
  if (member.runs && !is_too_late) {
    stop_round(Cause::kMembership, {what});
    last_failure_ = attempt_.interruption = what;
  }
  pass_time(now);
}

bool Coordinator::has_silent_lost() const {
  return std::ranges::any_of(lost_,
                             [](const auto& each) { return each.second == HowLost::kSilent; });
}

void Coordinator::report_silent(MemberId id, const std::string& how) {
  add_line(loss_line(members_.at(id).join, how));
}

void Coordinator::remove(MemberId id) {
  const auto found = members_.find(id);
  JoinedAgent& member = found->second;
  set_store(member, std::nullopt);
  set_runs(member, false);
  if (member.slot >= 0) --participants_;
  if (member.is_leaving) --leaving_;
  workers_ -= member.join.workers;
  if (const auto order = by_order_.find(member.join.order);
      order != by_order_.end() && order->second == id) {
    by_order_.erase(order);
  }
  members_.erase(found);
}

bool Coordinator::has_others_that_stay(const Join& one) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& each) {
    const JoinedAgent& member = each.second;
    return !member.is_leaving && (member.join.host != one.host || member.join.pid != one.pid);
  });
}

void Coordinator::set_clock(MemberId id, double difference, double error) {
  const auto member = members_.find(id);
  if (member == members_.end()) return;
  member->second.clock_difference = difference;
  member->second.clock_error = error;
}

void Coordinator::stop(int signal, Time now) {
  stop_signal_ = signal;
  if (phase_ == Phase::kEnded) return;
  if (phase_ == Phase::kJoining) return end_run(128 + signal, "");
  stop_round(Cause::kUser, {formatted("signal {} ends the run", signal), true});
  pass_time(now);
}

// A later cause of the same round replaces one that it explains: workers fail because a node is
// lost.
void Coordinator::stop_round(Cause cause, const StopReason& reason, MemberId but) {
  const bool is_first = cause_ == Cause::kNone;
  cause_ = std::max(cause_, cause);
  if (attempt_.interruption.empty() && cause == Cause::kMembership)
    attempt_.interruption = reason.text;
  if (!is_first && cause != Cause::kUser) return;
  phase_ = Phase::kStopping;
  for (const auto& [id, member] : members_) {
    if (member.runs && id != but) send(id, StopWorkers{reason.text, false, reason.is_signal});
  }
}

void Coordinator::pass_time(Time now) {
  const bool is_in_round = phase_ == Phase::kRunning || phase_ == Phase::kStopping;
  if (is_in_round && running_ == 0) conclude(now);
  if (phase_ == Phase::kJoining) try_to_begin(now);
}

Coordinator::Time Coordinator::next_deadline() const {
  if (phase_ != Phase::kJoining || is_held_) return Time::max();
  Time deadline = after(joining_since_, rules_.join_timeout);
  if (!has_reported_missing_)
    deadline = std::min(deadline, after(joining_since_, kFirstReportAfter));
  if (ready_ < rules_.shape.min_nodes) return deadline;
  return next_round_at();
}

void Coordinator::wait_for_agents(Time now) {
  phase_ = Phase::kJoining;
  joining_since_ = not_before_ = now;
  enough_since_.reset();
  has_reported_missing_ = false;
}

// REQUIRES: the fewest nodes are ready. After the first round only agents that have joined, and are
// about to be ready, are waited for.
Coordinator::Time Coordinator::next_round_at() const {
  const bool has_all = ready_ >= rules_.shape.active_nodes;
  const bool is_one_coming = round_ < 0 || ready_ + leaving_ < static_cast<int>(members_.size());
  if (has_all || !is_one_coming) return not_before_;
  const Time since = round_ < 0 && enough_since_ ? *enough_since_ : joining_since_;
  return std::max(not_before_, after(since, rules_.last_call_timeout));
}

void Coordinator::try_to_begin(Time now) {
  if (is_held_) return;
  const int ready = ready_;
  if (ready < rules_.shape.min_nodes) {
    enough_since_.reset();
    const std::string missing =
        formatted("{} of {}{}", counted(ready, "node"), rules_.shape.min_nodes,
                  members_.empty() ? "" : ": " + nodes_text());
    if (now >= after(joining_since_, rules_.join_timeout)) {
      return end_run(EXIT_FAILURE,
                     formatted("only {} joined within {} (join_timeout in --rdzv-conf)", missing,
                               seconds_text(rules_.join_timeout.count())));
    }
    if (now >= after(joining_since_, kFirstReportAfter) && !has_reported_missing_) {
      has_reported_missing_ = true;
      add_line(formatted("waiting for nodes, at most {}: so far {}{}",
                         seconds_text(rules_.join_timeout.count()), missing,
                         rules_.doubt.empty() ? "" : "; " + rules_.doubt));
    }
    return;
  }
  if (!enough_since_) enough_since_ = now;
  if (now >= next_round_at()) {
    round_began_ = now;
    begin_round();
  }
}

void Coordinator::begin_round() {
  std::vector<Candidate> candidates;
  for (const auto& [id, member] : members_) {
    if (!member.store) continue;
    candidates.push_back({id, member.join.workers, member.join.order, member.join.node, member.slot,
                          member.join.role});
  }
  const auto assignments = plan_round(candidates, rules_.shape.active_nodes);
  const Endpoint store = *members_.at(assignments.front().member).store;
  phase_ = Phase::kRunning;
  cause_ = Cause::kNone;
  attempt_ = AttemptReport{restarts_, std::chrono::system_clock::now()};
  unended_on_.clear();
  start_failure_.reset();
  ++round_;
  for (auto& [id, member] : members_) {
    member.slot = member.first_rank = -1;
    member.is_stopping = false;
  }
  participants_ = static_cast<int>(assignments.size());
  for (const RoundAssignment& assignment : assignments) {
    JoinedAgent& member = members_.at(assignment.member);
    member.slot = assignment.slot;
    member.first_rank = assignment.ranks.first_rank;
    set_runs(member, true);
    set_store(member, std::nullopt);
    send(assignment.member,
         StartRound{round_, assignment.ranks, store, restarts_, rules_.shape.max_restarts});
  }
}

void Coordinator::conclude(Time now) {
  attempt_.lifetime = now - round_began_;
  attempt_.failures = in_order(std::move(attempt_.failures));
  attempt_.can_restart = unended_on_.empty();
  report_.attempts.push_back(attempt_);
  if (has_failed(attempt_) && attempt_.interruption.empty()) last_failure_ = cause_of(attempt_);
  if (start_failure_) return end_run(start_failure_->exit_code, start_failure_->error.message);
  if (cause_ == Cause::kNone && attempt_.failures.empty()) return end_run(0, "");
  // Without a failure of its own it ended because of who came or went.
  const bool is_interrupted = cause_ == Cause::kMembership || !has_failed(attempt_);
  if (is_interrupted && cause_ != Cause::kUser && unended_on_.empty()) return wait_for_agents(now);
  if (!has_failed(attempt_) && cause_ != Cause::kUser) {
    const std::string more =
        unended_on_.size() > 1 ? formatted(" and {} more", unended_on_.size() - 1) : "";
    return end_run(EXIT_FAILURE,
                   formatted("the run ends: processes on {}{} did not end after SIGKILL",
                             *unended_on_.begin(), more));
  }
  const Decision decision =
      decide(report_.attempts, restarts_,
             {rules_.shape.max_restarts, rules_.restart_backoff, stop_signal_});
  report_.reason = decision.reason;
  if (decision.next == Decision::Next::kEnd) return end_run(decision.exit_code, "");
  ++restarts_;
  add_line(formatted("restart {} of {}", restarts_, rules_.shape.max_restarts));
  wait_for_agents(now);
  not_before_ = after(now, decision.delay);
}

void Coordinator::end_run(int exit_code, const std::string& reason) {
  phase_ = Phase::kEnded;
  report_.exit_code = exit_code;
  if (!reason.empty()) {
    report_.reason = reason;
    add_line(reason);
  }
  const bool has_failed = exit_code != 0 && exit_code != kRequeueExitCode && stop_signal_ == 0;
  const std::string text =
      reason.empty() && has_failed
          ? formatted("the run failed: the agent on {} prints the reason", report_.host)
          : reason;
  for (const auto& [id, member] : members_) outgoing_.push_back({id, EndRun{exit_code, text}});
}

void Coordinator::set_store(JoinedAgent& member, std::optional<Endpoint> store) {
  ready_ += static_cast<int>(store.has_value()) - static_cast<int>(member.store.has_value());
  member.store = std::move(store);
}

void Coordinator::set_runs(JoinedAgent& member, bool runs) {
  running_ += static_cast<int>(runs) - static_cast<int>(member.runs);
  member.runs = runs;
}

std::string Coordinator::nodes_text() const {
  constexpr std::size_t kMost = 8;
  std::string ready, others;
  std::size_t count = 0;
  for (const auto& [id, member] : members_) {
    std::string& text = member.store || member.runs ? ready : others;
    text += (text.empty() ? "" : ", ") + (++count > kMost ? "..." : name_of(member.join));
    if (count > kMost) break;
  }
  return ready + (others.empty() ? "" : (ready.empty() ? "not ready: " : "; not ready: ") + others);
}

std::string Coordinator::status_json() const {
  constexpr const char* kPhases[] = {"joining", "running", "stopping", "ended"};
  OrderedJson nodes = OrderedJson::array();
  for (const auto& [id, member] : members_) {
    const char* state = member.is_leaving ? "leaving"
                        : member.runs     ? "running"
                        : member.store    ? "waiting"
                                          : "joining";
    nodes.push_back({{"host", member.join.host},
                     {"pid", member.join.pid},
                     {"state", state},
                     {"node_rank", member.slot},
                     {"first_rank", member.first_rank},
                     {"workers", member.join.workers}});
  }
  const OrderedJson object = {{"run_id", rules_.run_id},
                              {"program", report_.program},
                              {"coordinator", report_.host},
                              {"phase", kPhases[static_cast<int>(phase_)]},
                              {"round", std::max(round_, 0)},
                              {"restarts", restarts_},
                              {"max_restarts", rules_.shape.max_restarts},
                              {"min_nodes", rules_.shape.min_nodes},
                              {"max_nodes", rules_.shape.max_nodes},
                              {"active_nodes", rules_.shape.active_nodes},
                              {"nodes", nodes},
                              {"last_failure", last_failure_}};
  return object.dump(2, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace torchbridge
