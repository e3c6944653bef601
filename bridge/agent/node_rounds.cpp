#include "bridge/agent/node_rounds.h"

#include <unistd.h>

#include "bridge/agent/store_reservation.h"
#include "bridge/net/address.h"

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
  return join;
}

CoordinatorRules rules_of(const RunOptions& options, const RunEndpoint& endpoint) {
  const RendezvousTimes times = rendezvous_times(options);
  CoordinatorRules rules;
  rules.shape = endpoint.shape;
  rules.run_id = endpoint.run_id;
  rules.restart_backoff = Seconds(options.restart_backoff);
  rules.join_timeout = Seconds(times.join_timeout);
  rules.last_call_timeout = Seconds(times.last_call_timeout);
  rules.keep_alive = {static_cast<double>(times.keep_alive_interval), times.keep_alive_max_attempt};
  return rules;
}

}  // namespace

Result<std::unique_ptr<NodeRounds>> NodeRounds::open(AgentContext& context, RestartBudget& budget, RunEndpoint endpoint,
                                                     int workers, const RunReport& report) {
  std::unique_ptr<NodeRounds> rounds(new NodeRounds(context, budget, endpoint, workers));
  if (!endpoint.listener.open()) return rounds;
  auto server = CoordinatorServer::open(std::move(endpoint.listener), Coordinator(rules_of(context.options, endpoint),
                                                                                  report, budget.used(), Clock::now()));
  if (!server) return server.error();
  rounds->server_ = std::move(*server);
  return rounds;
}

NodeRounds::NodeRounds(AgentContext& context, RestartBudget& budget, const RunEndpoint& endpoint, int workers)
    : context_(context),
      budget_(budget),
      coordinator_(endpoint.coordinator),
      join_(join_of(context, endpoint, workers)),
      join_timeout_(rendezvous_times(context.options).join_timeout),
      close_timeout_(rendezvous_times(context.options).close_timeout),
      client_(client(true)) {}

CoordinatorClient NodeRounds::client(bool is_first) const {
  const auto now = Clock::now();
  return {coordinator_, join_, now, after(now, join_timeout_), is_first};
}

std::vector<pollfd> NodeRounds::poll_entries() const {
  std::vector<pollfd> entries;
  if (server_) entries.push_back({server_->descriptor(), POLLIN, 0});
  if (client_.descriptor() >= 0) {
    entries.push_back({client_.descriptor(), static_cast<short>(client_.events()), 0});
  }
  return entries;
}

SteadyTime NodeRounds::next_deadline() const {
  return std::min(client_.next_deadline(), server_ ? server_->next_deadline() : SteadyTime::max());
}

void NodeRounds::carry() {
  const auto now = Clock::now();
  if (server_) {
    server_->carry(now);
    while (budget_.used() < server_->coordinator().restarts_used()) {
      if (const auto used = budget_.use_one(); !used) print_line(context_, used.error().message);
    }
    for (const std::string& line : server_->take_lines()) print_line(context_, line);
  }
  client_.carry(now);
  for (const AgentMessage& message : client_.take_messages()) receive(message);
  // Without a coordinator the workers must not go on: the other nodes may begin without them.
  if (client_.failure() && !start_) orders_.stops_workers = true;
}

void NodeRounds::receive(const AgentMessage& message) {
  if (const auto* start = std::get_if<StartRound>(&message)) {
    start_ = *start;
    orders_ = {};
  } else if (const auto* stop = std::get_if<StopWorkers>(&message)) {
    (stop->after_grace ? orders_.stops_after_grace : orders_.stops_workers) = true;
  } else if (std::holds_alternative<BeginExitBarrier>(message)) {
    orders_.begins_exit_barrier = true;
  } else if (const auto* end = std::get_if<EndRun>(&message)) {
    end_ = *end;
    orders_.stops_workers = true;
  }
}

void NodeRounds::on_stop_signal(int signal) {
  if (server_) {
    server_->stop(signal, Clock::now());
  } else {
    client_.send(Leave{signal});
  }
}

bool NodeRounds::wait_until(const std::function<bool()>& fact) {
  while (!fact()) {
    if (end_ || client_.failure() || context_.is_guardian_gone) return false;
    if (context_.stop_signal != 0 && !server_) return false;
    const Events events = context_.events.wait(SteadyTime::max(), nullptr, context_.consoles);
    context_.is_guardian_gone = context_.is_guardian_gone || events.is_guardian_gone;
    for (const int signal : events.stop_signals) {
      if (context_.stop_signal != 0) return false;
      context_.stop_signal = signal;
      on_stop_signal(signal);
    }
  }
  return true;
}

std::variant<Round, RunEnd> NodeRounds::next() {
  for (;;) {
    if (!wait_until([&] { return client_.has_joined(); })) {
      if (!can_join_again()) return end_of_run();
    } else {
      if (const auto ready = be_ready(); !ready) {
        conclude(StartFailure{EXIT_FAILURE, ready.error()});
      }
      if (wait_until([&] { return start_.has_value(); })) return round_of(*std::exchange(start_, std::nullopt));
      if (!can_join_again()) return end_of_run();
    }
    print_line(context_, *client_.failure() + ": joining again");
    client_ = client(false);
  }
}

bool NodeRounds::can_join_again() const {
  return client_.is_lost() && !end_ && context_.stop_signal == 0 && !context_.is_guardian_gone;
}

// The port is bound before it is known whether rank 0 is on this node, so that no message more is needed.
Status NodeRounds::be_ready() {
  const RunOptions& options = context_.options;
  auto store = reserve_store(options.local_addr.empty() ? client_.own_address() : options.local_addr, 0);
  if (!store) return store.error();
  store_port_ = std::move(store->socket);
  client_.send(Ready{store->address});
  return Ok{};
}

Round NodeRounds::round_of(const StartRound& start) {
  Round round;
  round.number = start.round;
  AttemptFacts& facts = round.facts;
  facts.node_rank = start.node_rank;
  facts.node_count = start.node_count;
  facts.workers = join_.workers;
  facts.first_local_rank = start.first_local_rank;
  facts.local_world_size = start.local_world_size;
  facts.first_rank = start.first_rank;
  facts.world_size = start.world_size;
  facts.master = start.store;
  facts.run_id = start.run_id;
  facts.restart_count = start.restart_count;
  facts.max_restarts = start.max_restarts;
  if (start.node_count > 1) facts.interface = interface_towards(start.store.host);
  if (facts.interface == "lo") facts.interface.clear();
  if (start.first_rank == 0) round.store_port = std::move(store_port_);
  store_port_ = Socket();
  return round;
}

void NodeRounds::conclude(const AttemptReport& attempt, bool can_restart) {
  ends_.push_back(torchbridge::end_of(attempt, can_restart));
  // The workers were killed because of it: the coordinator is to see this agent as lost.
  if (context_.is_guardian_gone) return client_.close();
  client_.send(Ended{attempt, can_restart, "", 0});
}

void NodeRounds::conclude(const StartFailure& failure) {
  client_.send(Ended{{}, false, failure.error.message, failure.exit_code});
}

RunEnd NodeRounds::end_of_run() {
  if (context_.is_guardian_gone) return {EXIT_FAILURE};
  budget_.remove();
  RunEnd end;
  if (end_) {
    end.exit_code = end_->exit_code;
  } else if (context_.stop_signal != 0) {
    end.exit_code =
        ends_.empty() ? 128 + context_.stop_signal : decide(ends_, 0, {0, {}, context_.stop_signal}).exit_code;
  } else {
    end = {EXIT_FAILURE, client_.failure().value_or("")};
  }
  if (server_) {
    finish_coordination();
    end.report = server_->coordinator().report();
    end.report->exit_code = end.exit_code;
  }
  return end;
}

// Until the other agents have read the end.
void NodeRounds::finish_coordination() {
  client_.close();
  const auto deadline = after(Clock::now(), close_timeout_);
  while (server_->has_members() && Clock::now() < deadline && !context_.is_guardian_gone) {
    const Events events = context_.events.wait(deadline, nullptr, context_.consoles);
    context_.is_guardian_gone = events.is_guardian_gone;
    if (!events.stop_signals.empty()) return;
  }
}

}  // namespace torchbridge
