#include "bridge/agent/node_rounds.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "bridge/agent/summary_file.h"
#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/net/address.h"
#include "bridge/run_values/restart_policy.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

Join join_of(const AgentContext& context, const RunEndpoint& endpoint, int workers) {
  Join join;
  join.run_id = endpoint.run_id;
  join.shape = endpoint.shape;
  join.host = context.host;
  join.pid = getppid();  // the guardian
  join.workers = workers;
  join.order = endpoint.order;
  join.node = endpoint.node;
  join.role = context.options.role;
  return join;
}

CoordinatorRules rules_of(const RunOptions& options, const RendezvousConf& times,
                          const RunEndpoint& endpoint) {
  CoordinatorRules rules;
  rules.shape = endpoint.shape;
  rules.run_id = endpoint.run_id;
  rules.doubt = endpoint.doubt;
  rules.restart_backoff = Seconds(options.restart_backoff);
  rules.join_timeout = Seconds(times.join_timeout);
  rules.last_call_timeout = Seconds(times.last_call_timeout);
  rules.keep_alive = {static_cast<double>(times.keep_alive_interval), times.keep_alive_max_attempt};
  return rules;
}

// Where it listens, for a message.
std::string endpoint_text(const Socket& listener) {
  const auto host = bound_host(listener);
  const auto port = bound_port(listener);
  if (!host || !port) return "its port";
  return formatted("{} port {}",
                   is_any_address(*host) ? formatted("an address of {}", host_name()) : *host,
                   *port);
}

bool has_come(int descriptor) {
  pollfd entry{descriptor, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace

Result<std::unique_ptr<NodeRounds>> NodeRounds::open(AgentContext& context, RestartBudget& budget,
                                                     RunEndpoint endpoint, int workers,
                                                     const RunReport& report) {
  std::unique_ptr<NodeRounds> rounds(
      new NodeRounds(context, budget, std::move(endpoint), workers, report));
  RunEndpoint& own = rounds->endpoint_;
  // A name that does not resolve yet is tried again when this agent gets ready.
  if (const std::string& address = context.options.local_addr;
      !address.empty() && numeric_address(address)) {
    const auto usable = reserve_store(address, 0, "--local-addr");
    if (!usable) return usable.error();
  }
  if (own.listener.open()) {
    if (const auto begun = rounds->begin_to_coordinate(std::move(own.listener), budget.used());
        !begun) {
      return begun.error();
    }
  }
  if (const auto found = rounds->find_coordinator(true); !found) return found.error();
  return rounds;
}

NodeRounds::NodeRounds(AgentContext& context, RestartBudget& budget, RunEndpoint endpoint,
                       int workers, RunReport report)
    : context_(context),
      budget_(budget),
      endpoint_(std::move(endpoint)),
      report_(std::move(report)),
      times_(context.options.rdzv_conf),
      join_(join_of(context, endpoint_, workers)),
      searching_since_(Clock::now()),
      deadline_(after(searching_since_, Seconds(times_.join_timeout))) {}

Status NodeRounds::begin_to_coordinate(Socket listener, int restarts) {
  const std::string where = endpoint_text(listener);
  // Who listens late has waited for other nodes until then.
  const SteadyTime since = endpoint_.record ? Clock::now() : searching_since_;
  auto server = CoordinatorServer::open(
      std::move(listener), endpoint_.key,
      Coordinator(rules_of(context_.options, times_, endpoint_), report_, restarts, since));
  if (!server) return server.error();
  if (const auto emptied = empty_summary(context_.options.json_summary); !emptied)
    return emptied.error();
  server_ = std::move(*server);
  if (!endpoint_.key.has_token()) {
    const bool has_default_id = endpoint_.run_id == RunOptions().rdzv_id;
    const std::string who = has_default_id
                                ? " can join it, because its id is the default, and read its state"
                                : " and gives the run's id can join it, and read its state";
    print_line(context_, formatted("this run has no token: whoever reaches {}{}: give all nodes "
                                   "the same --rdzv-token-file or {}",
                                   where, who, kTokenVariable));
  }
  if (endpoint_.is_for_others) {
    print_line(context_, formatted("{} is each host's own address, which other nodes do not reach: "
                                   "node 0 listens at all addresses of {}",
                                   printable(endpoint_.coordinator.host), host_name()));
  } else if (!endpoint_.own_host.empty()) {
    print_line(context_, formatted("{} is no address of {}, which is node 0 as it was told: it "
                                   "listens at {}, and {} must lead there",
                                   printable(endpoint_.coordinator.host), host_name(), where,
                                   printable(endpoint_.coordinator.host)));
  }
  return Ok{};
}

void NodeRounds::listen_late() {
  const std::string address = client_->take_unreached();
  if (address.empty() || server_ || client_->failure()) return;
  const Status begun = [&]() -> Status {
    if (const auto listening = listen_at_endpoint(endpoint_, address); !listening) return listening;
    if (!endpoint_.listener.open()) return Ok{};
    auto budget = RestartBudget::open(context_.options, getppid());
    if (!budget) return budget.error();
    budget_ = std::move(*budget);
    return begin_to_coordinate(std::move(endpoint_.listener), budget_.used());
  }();
  if (server_) return connect(endpoint_.coordinator, true);
  if (begun) return;
  print_line(context_, begun.error().message);
  end_ = EndRun{EXIT_FAILURE, ""};
}

void NodeRounds::connect(const Endpoint& coordinator, bool is_first) {
  const auto now = Clock::now();
  // A record may name another one by then.
  const auto until = after(now, Seconds(times_.keep_alive_interval *
                                        (times_.keep_alive_max_attempt +
                                         2)));  // that of Rejected::retry_seconds is shorter
  // What stands in front of this host may not lead back from it.
  const std::string& own = endpoint_.own_host;
  const Endpoint target = own.empty() ? coordinator : Endpoint{own, coordinator.port};
  client_.emplace(target, endpoint_.key, join_, now,
                  endpoint_.record ? std::min(until, deadline_) : deadline_, is_first);
}

Status NodeRounds::find_coordinator(bool is_first) {
  CoordinatorRecord* const record = endpoint_.record.get();
  if (record == nullptr) return connect(endpoint_.coordinator, is_first), Ok{};
  const auto host = context_.options.local_addr.empty()
                        ? reachable_address()
                        : numeric_address(context_.options.local_addr);
  if (!host) return host.error();
  auto listener = listen_on({*host, 0});
  if (!listener) return listener.error();
  const auto port = bound_port(*listener);
  if (!port) return port.error();
  const auto holder = record->take_or_read({*host, *port});
  if (!holder) return holder.error();
  if (holder->is_self) {
    const auto restarts = record->restarts();
    if (!restarts) return record->release(), restarts.error();
    const int used = is_first && restarts->is_left ? 0 : restarts->used;
    endpoint_restarts_ = used;
    if (!is_first)
      times_.last_call_timeout = std::min(times_.last_call_timeout, times_.keep_alive_interval);
    if (const auto begun = begin_to_coordinate(std::move(*listener), used); !begun)
      return record->release(), begun.error();
  }
  // One that is gone still holds the record for a while: then it is read again.
  const Endpoint no_listener{"127.0.0.1", 0};
  return connect(holder->coordinator.port == 0 ? no_listener : holder->coordinator, false), Ok{};
}

std::vector<pollfd> NodeRounds::poll_entries() const {
  std::vector<pollfd> entries;
  if (server_) entries.push_back({server_->descriptor(), POLLIN, 0});
  if (server_ && endpoint_.record) entries.push_back({endpoint_.record->descriptor(), POLLIN, 0});
  if (client_->descriptor() >= 0) {
    entries.push_back({client_->descriptor(), static_cast<short>(client_->events()), 0});
  }
  return entries;
}

SteadyTime NodeRounds::next_deadline() const {
  return std::min(client_->next_deadline(), server_ ? server_->next_deadline() : SteadyTime::max());
}

void NodeRounds::carry() {
  const auto now = Clock::now();
  if (server_ && endpoint_.record && has_come(endpoint_.record->descriptor())) {
    print_line(context_,
               "this agent no longer coordinates the run: its etcd lease was not renewed (etcd "
               "unreachable, or this "
               "process was stopped); all agents end their workers and join another coordinator");
    server_.reset();
    endpoint_.record->release();
  }
  if (server_ && endpoint_.record) endpoint_.record->show_life();
  if (server_) {
    server_->carry(now);
    note_restarts();
    for (const std::string& line : server_->take_lines()) print_line(context_, printed_ = line);
  }
  client_->carry(now);
  has_reached_one_ = has_reached_one_ || client_->has_reached();
  listen_late();
  report_wait(now);
  report_unknown_coordinator();
  const bool is_leaving = context_.stop_signal != 0 && server_ && endpoint_.record && !end_;
  if (is_leaving && !is_in_round_ && !server_->coordinator().has_workers()) leave();
  for (const AgentMessage& message : client_->take_messages()) receive(message);
  // Without a coordinator the workers must not go on: the other nodes may begin without them.
  if (client_->failure() && !start_) orders_.stops_workers = true;
}

bool NodeRounds::is_reporter() const { return !endpoint_.is_output_shared || join_.order == 1; }

void NodeRounds::report_wait(SteadyTime now) {
  if (!is_reporter() || has_reported_wait_ || client_->has_joined() || client_->problem().empty())
    return;
  if (now < after(searching_since_, kFirstReportAfter)) return;
  has_reported_wait_ = true;
  print_line(context_,
             formatted("waiting for the coordinator, at most {} s: {}{}", times_.join_timeout,
                       client_->problem(), endpoint_.doubt.empty() ? "" : "; " + endpoint_.doubt));
}

void NodeRounds::report_unknown_coordinator() {
  // Of a launcher's agents, whose lines are in one place, the coordinator says so for all.
  if (endpoint_.is_of_launcher || has_reported_unknown_coordinator_ || !is_reporter() ||
      !client_->has_joined() || knows_coordinator())
    return;
  has_reported_unknown_coordinator_ = true;
  print_line(context_,
             formatted("this run has no token: whatever program listens at {} can end this node's "
                       "workers: give all nodes the same --rdzv-token-file or {}",
                       client_->target(), kTokenVariable));
}

void NodeRounds::note_restarts() {
  const int restarts = server_->coordinator().restarts_used();
  if (endpoint_.record && restarts > endpoint_restarts_) {
    endpoint_restarts_ = restarts;
    if (const auto set = endpoint_.record->set_restarts({restarts, false}); !set)
      print_line(context_, set.error().message);
  }
  while (budget_.used() < restarts) {
    if (const auto used = budget_.use_one(); !used) print_line(context_, used.error().message);
  }
}

std::vector<int> NodeRounds::helpers() const {
  const int lease_process = endpoint_.record ? endpoint_.record->lease_process() : -1;
  return lease_process > 0 ? std::vector<int>{lease_process} : std::vector<int>();
}

void NodeRounds::receive(const AgentMessage& message) {
  if (const auto* start = std::get_if<StartRound>(&message)) {
    start_ = *start;
    orders_ = {};
    is_stopped_ = false;
  } else if (const auto* stop = std::get_if<StopWorkers>(&message)) {
    client_->send(Stopping{});
    is_stopped_ = true;
    // What a launcher signals in one agent it signals in all.
    const bool is_signalled = stop->for_signal && endpoint_.is_output_shared;
    (stop->after_grace ? orders_.stops_after_grace
     : is_signalled    ? orders_.stops_unless_signalled
                       : orders_.stops_workers) = true;
    if (!endpoint_.is_output_shared && stop->reason != printed_) print_line(context_, stop->reason);
  } else if (std::holds_alternative<BeginExitBarrier>(message)) {
    orders_.begins_exit_barrier = true;
  } else if (const auto* end = std::get_if<EndRun>(&message)) {
    end_ = *end;
    if (end_->exit_code == 0 && is_success_owed()) {
      end_->exit_code = EXIT_FAILURE;
      print_line(
          context_,
          formatted(
              "{} ends the run with 0, but this node's workers have not ended with 0: another "
              "program may have the port, or this node is a spare: give all nodes the same "
              "--rdzv-token-file or {}",
              client_->target(), kTokenVariable));
    }
    orders_.stops_workers = true;
  }
}

bool NodeRounds::knows_coordinator() const { return server_ || client_->knows_coordinator(); }

bool NodeRounds::is_success_owed() const {
  return is_in_round_ || start_ || (owes_success_ && !knows_coordinator());
}

void NodeRounds::on_stop_signal(int signal) {
  if (server_ && endpoint_.record) {
    server_->hold();  // until no worker of any node runs: they may be saving
    client_->send(Leave{signal});
  } else if (server_) {
    server_->stop(signal, Clock::now());
  } else {
    client_->send(Leave{signal});
  }
}

// Another agent coordinates from now on; where none stays, the run has ended.
void NodeRounds::leave() {
  const Coordinator& coordinator = server_->coordinator();
  const bool is_last = !coordinator.has_others_that_stay(join_);
  const int restarts = coordinator.restarts_used();
  report_at_end_ = coordinator.report();
  server_.reset();
  if (is_last) {
    endpoint_.record->remove();
  } else {
    (void)endpoint_.record->set_restarts({restarts, true});
    endpoint_.record->release();
  }
  client_->close();
}

bool NodeRounds::wait_until(const std::function<bool()>& fact, SteadyTime latest) {
  while (!fact() && Clock::now() < latest) {
    if (end_ || client_->failure() || context_.is_guardian_gone) return false;
    if (context_.stop_signal != 0 && !server_) return false;
    const Events events = context_.events.wait(latest, nullptr, context_.consoles);
    context_.is_guardian_gone = context_.is_guardian_gone || events.is_guardian_gone;
    for (const auto& signal : events.stop_signals) {
      if (note_stop(context_, signal.number)) {
        on_stop_signal(signal.number);
      } else if (signal.number == SIGINT) {
        return false;
      }
    }
  }
  return true;
}

std::variant<Round, RunEnd> NodeRounds::next() {
  for (;;) {
    const bool is_ready = wait_until([&] { return client_->has_joined(); }) && get_ready();
    if (is_ready && wait_until([&] { return start_.has_value(); })) {
      return round_of(*std::exchange(start_, std::nullopt));
    }
    if (!can_join_again()) return end_of_run();
    if (client_->is_lost()) {
      print_line(context_, formatted("{}: joining again", *client_->failure()));
      searching_since_ = Clock::now();
      deadline_ = after(searching_since_, Seconds(times_.join_timeout));
      has_reported_wait_ = false;
    } else if (!pause_before_search()) {
      return end_of_run();
    }
    if (const auto found = search_again(); !found) {
      return context_.stop_signal != 0 ? end_of_run() : RunEnd{EXIT_FAILURE, found.error().message};
    }
  }
}

Status NodeRounds::search_again() {
  bool has_reported = false;
  for (;;) {
    const auto found = find_coordinator(false);
    if (found || !endpoint_.record || Clock::now() >= deadline_) return found;
    if (!std::exchange(has_reported, true)) {
      print_line(context_, formatted("{}: trying again for {} s", found.error().message,
                                     times_.join_timeout));
    }
    if (!pause_before_search()) return found;
  }
}

// Where a record names a coordinator that is gone, until it names another one.
bool NodeRounds::pause_before_search() {
  constexpr std::chrono::milliseconds kPause{250};
  const auto until = Clock::now() + kPause;
  while (Clock::now() < until && context_.stop_signal == 0 && !context_.is_guardian_gone) {
    wait_for_events(context_, until);
  }
  return context_.stop_signal == 0 && !context_.is_guardian_gone;
}

bool NodeRounds::can_join_again() const {
  if (end_ || context_.stop_signal != 0 || context_.is_guardian_gone) return false;
  return client_->is_lost() ||
         (endpoint_.record && !client_->is_rejected() && Clock::now() < deadline_);
}

bool NodeRounds::get_ready() {
  if (context_.stop_signal != 0 && !server_) return false;
  constexpr std::chrono::seconds kPause{1};
  const SteadyTime deadline = after(Clock::now(), Seconds(times_.join_timeout));
  for (bool has_reported = false;;) {
    const auto ready = be_ready();
    if (ready) return true;
    if (Clock::now() >= deadline && server_)
      return server_->fail(ready.error().message, Clock::now()), true;
    if (Clock::now() >= deadline) return conclude(StartFailure{EXIT_FAILURE, ready.error()}), true;
    if (!std::exchange(has_reported, true))
      print_line(context_,
                 formatted("waiting for the address of this node: {}", ready.error().message));
    const SteadyTime next = Clock::now() + kPause;
    if (!wait_until([] { return false; }, next)) return false;
  }
}

// The one that the coordinator sees, unless that is a loopback address to which only this node
// resolves its name.
std::string NodeRounds::own_address() const {
  if (!context_.options.local_addr.empty()) return context_.options.local_addr;
  const std::string& seen = client_->own_address();
  const bool is_for_this_host =
      names_loopback(endpoint_.coordinator.host) && !endpoint_.is_for_others;
  if (!is_loopback(seen) || is_for_this_host) return seen;
  const auto reachable = reachable_address();
  return reachable ? *reachable : seen;
}

// The port is bound before it is known whether rank 0 is on this node, so that no message more is
// needed.
Status NodeRounds::be_ready() {
  auto store = reserve_store(own_address(), 0, "");
  if (!store) return store.error();
  store_port_ = std::move(store->socket);
  client_->send(Ready{store->address});
  return Ok{};
}

Round NodeRounds::round_of(const StartRound& start) {
  is_in_round_ = owes_success_ = true;
  Round round;
  round.number = start.round;
  AttemptFacts& facts = round.facts;
  facts.ranks = start.ranks;
  facts.workers = join_.workers;
  facts.master = start.store;
  facts.run_id = endpoint_.run_id;
  facts.restart_count = start.restart_count;
  facts.max_restarts = start.max_restarts;
  if (start.ranks.node_count > 1) facts.interface = interface_towards(start.store.host);
  if (facts.interface == "lo") facts.interface.clear();
  if (start.ranks.first_rank == 0) round.store_port = std::move(store_port_);
  store_port_ = Socket();
  return round;
}

void NodeRounds::conclude(const AttemptReport& attempt) {
  is_in_round_ = false;
  owes_success_ = is_stopped_ || client_->failure() || !attempt.failures.empty();
  attempts_.push_back(attempt);
  // The workers were killed because of it: the coordinator is to see this agent as lost.
  if (context_.is_guardian_gone) return client_->close();
  client_->send(AttemptEnded{attempt});
}

void NodeRounds::conclude(const StartFailure& failure) {
  is_in_round_ = false;
  client_->send(AttemptEnded{{}, failure});
}

RunEnd NodeRounds::end_of_run() {
  if (context_.is_guardian_gone) return {EXIT_FAILURE};
  budget_.remove();
  RunEnd end;
  if (end_) {
    end.exit_code = end_->exit_code;
    if (!server_ && !endpoint_.is_output_shared) end.message = end_->reason;
  } else if (context_.stop_signal != 0) {
    end.exit_code = attempts_.empty()
                        ? 128 + context_.stop_signal
                        : decide(attempts_, 0, {0, {}, context_.stop_signal}).exit_code;
  } else {
    end = {EXIT_FAILURE, client_->failure().value_or("")};
    // The coordinator is stopped, or waits for this agent, which it has rejected. One that nobody
    // can reach keeps no agent for longer than this one; where there is none, the other tasks may
    // run another program, as where one of them has started this agent for itself.
    end.leaves_agents = has_reached_one_ && endpoint_.shape.min_nodes == endpoint_.shape.max_nodes;
  }
  if (server_) {
    report_at_end_ = server_->coordinator().report();
    finish_coordination();
    // After a success those that are gone have no part in the end, and those that answer end.
    const bool has_failed = end.exit_code != 0 && end.exit_code != kRequeueExitCode;
    if (server_ && has_failed)
      end.leaves_agents = server_->coordinator().has_lost() || server_->has_members();
    else if (server_ && endpoint_.is_of_launcher)  // else they may be of other steps
      end.leaves_agents =
          server_->coordinator().has_silent_lost() || server_->silences_of_members() > 0;
    if (endpoint_.record) endpoint_.record->remove();
  }
  end.report = std::move(report_at_end_);
  if (end.report) end.report->exit_code = end.exit_code;
  return end;
}

// Until the other agents have read the end, which one that is stopped reads when it is continued.
void NodeRounds::finish_coordination() {
  client_->close();
  const Seconds until_lost(times_.keep_alive_interval * (times_.keep_alive_max_attempt + 1));
  auto deadline = after(Clock::now(), std::max(Seconds(times_.close_timeout), until_lost));
  bool has_continued = false;
  while (server_ && server_->has_members() && Clock::now() < deadline &&
         !context_.is_guardian_gone) {
    const int silences = server_->silences_of_members();
    const bool can_continue = context_.continue_agents && context_.stop_signal == 0;
    if (silences > 1 || (silences > 0 && !can_continue)) return;
    if (silences == 1 && !std::exchange(has_continued, true)) {
      context_.continue_agents();
      deadline = std::max(deadline, after(Clock::now(), until_lost));
    }
    if (!wait_for_events(context_, deadline).stop_signals.empty()) return;
  }
}

}  // namespace torchbridge
