#include "bridge/agent/local_rounds.h"

#include "bridge/base/message_text.h"
#include "bridge/net/address.h"
#include "bridge/run_values/restart_policy.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;

// What the options give for MASTER_ADDR and MASTER_PORT; port 0: a free one. As in torchrun,
// --rdzv-endpoint is both for the backend static.
Endpoint wanted_master(const RunOptions& options) {
  if (options.is_standalone) return {"127.0.0.1", 0};
  if (options.rdzv_backend == RdzvBackend::kStatic && !options.rdzv_endpoint.empty())
    return options.rdzv_address;
  return {without_brackets(options.master_addr), options.master_port.value_or(0)};
}

}  // namespace

LocalRounds::LocalRounds(AgentContext& context, RestartBudget& budget, int workers,
                         RunReport report)
    : context_(context), budget_(budget), workers_(workers), report_(std::move(report)) {}

std::variant<Round, RunEnd> LocalRounds::next() {
  // The run may go on under another agent: its budget stays, and no report is due.
  if (context_.is_guardian_gone) return RunEnd{EXIT_FAILURE};
  if (start_failure_) {
    budget_.remove();
    return RunEnd{start_failure_->exit_code, start_failure_->error.message};
  }
  if (report_.attempts.empty()) {
    if (budget_.used() > 0) {
      print_line(context_, formatted("the run goes on with {} of {} restarts used", budget_.used(),
                                     context_.options.max_restarts));
    }
    return begin();
  }
  const RestartRules rules{context_.options.max_restarts,
                           std::chrono::duration<double>(context_.options.restart_backoff),
                           context_.stop_signal};
  const Decision decision = decide(report_.attempts, budget_.used(), rules);
  report_.reason = decision.reason;
  if (decision.next == Decision::Next::kEnd) return end(decision.exit_code);
  if (const auto used = budget_.use_one(); !used) print_line(context_, used.error().message);
  print_line(context_,
             formatted("restart {} of {}", budget_.used(), context_.options.max_restarts));
  wait_before_restart(decision.delay);
  if (context_.is_guardian_gone) return RunEnd{EXIT_FAILURE};
  if (context_.stop_signal != 0) return end(128 + context_.stop_signal);
  return begin();
}

std::variant<Round, RunEnd> LocalRounds::begin() const {
  Endpoint wanted = wanted_master(context_.options);
  if (const auto address = numeric_address(wanted.host); address && is_any_address(*address))
    wanted.host = loopback_like(*address);
  // The launcher may have reserved the port for this agent: srun --torch-env torchbridge run
  // --master-port $MASTER_PORT.
  const auto own = context_.environment.integer("TORCHBRIDGE_LISTEN_FD", 3, INT32_MAX);
  const int descriptor = own && *own ? static_cast<int>(**own) : -1;
  auto store = reserve_store(wanted.host, wanted.port, "--master-addr", descriptor);
  if (!store) {
    budget_.remove();
    return RunEnd{EXIT_FAILURE, store.error().message};
  }
  Round round;
  round.number = budget_.used();
  AttemptFacts& facts = round.facts;
  WorkerRanks& at = facts.ranks;
  facts.workers = at.local_world_size = at.world_size = at.role_world_size = workers_;
  facts.master = store->address;
  facts.run_id = report_.run_id;
  facts.restart_count = budget_.used();
  facts.max_restarts = context_.options.max_restarts;
  round.store_port = std::move(store->socket);
  return round;
}

RunEnd LocalRounds::end(int exit_code) {
  budget_.remove();
  report_.exit_code = exit_code;
  return {exit_code, "", report_};
}

void LocalRounds::conclude(const AttemptReport& attempt) { report_.attempts.push_back(attempt); }

void LocalRounds::wait_before_restart(std::chrono::duration<double> delay) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
  while (Clock::now() < until && context_.stop_signal == 0 && !context_.is_guardian_gone) {
    wait_for_events(context_, until);
  }
}

}  // namespace torchbridge
