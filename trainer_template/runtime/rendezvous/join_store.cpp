#include "trainer_template/runtime/rendezvous/join_store.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/net/address.h"
#include "bridge/net/name_resolver.h"
#include "bridge/net/random_token.h"
#include "bridge/net/socket.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/rendezvous/abort_watchdog.h"
#include "trainer_template/runtime/rendezvous/file_store.h"
#include "trainer_template/runtime/rendezvous/quiet_c10d.h"
#include "trainer_template/runtime/rendezvous/reverse_lookups.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"
#include "trainer_template/runtime/rendezvous/store_probe.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool has_other_nodes(const Launch& launch) {
  return launch.env.layout.node_count > 1 || launch.may_have_other_nodes;
}

std::string listens_for_others(const TorchEnv& env) {
  const Layout& at = env.layout;
  return formatted(
      "MASTER_ADDR={} is each host's own address, which other nodes do not reach: rank 0 listens "
      "at all addresses of {}{}",
      env.master.host, host_name(),
      at.local_world_size < at.world_size
          ? ""
          : formatted("; if all ranks are there, set LOCAL_WORLD_SIZE={}", at.world_size));
}

// Bound to the address of the store alone where that can be: not all interfaces, as TCPStore would.
// Who says that this is rank 0 may reach it by an address in front of it, as that of a service.
Socket bind_store(const Launch& launch, const std::string& numeric) {
  const Endpoint& named = launch.env.master;
  Endpoint address{numeric, named.port};
  const bool is_own = is_own_address(numeric);
  // At a wrong address the other ranks would reach another service, and their message would name
  // that.
  if (!is_own && !launch.is_by_hand) {
    throw TrainError(
        formatted("MASTER_ADDR={} is no address of {}, where rank 0 runs; set it to one that all "
                  "nodes can reach, or unset it under srun and mpirun",
                  named.host, host_name()));
  }
  // In /etc/hosts a node's own name may be a loopback address, and by hand rank 0 alone may have
  // localhost or 0.0.0.0; other nodes connect to another address then.
  const bool is_any = is_any_address(numeric);
  const bool needs_all_interfaces = has_other_nodes(launch) && (is_any || is_loopback(numeric));
  if (!is_own) address.host = any_address_like(numeric);
  if (is_any) address.host = loopback_like(numeric);
  if (needs_all_interfaces) address.host = any_address_for_others(numeric);
  auto socket = listen_on(address);
  // With GROUP_WORLD_SIZE the other nodes are known.
  if (socket && needs_all_interfaces && launch.env.layout.node_count == 1)
    print_message(listens_for_others(launch.env));
  if (socket && !is_own) {
    print_message(
        formatted("MASTER_ADDR={} is no address of {}, where rank 0 runs as RANK says: it "
                  "listens at all that {} has, and {} must lead to port {} there",
                  named.host, host_name(), host_name(), named.host, named.port));
  }
  if (!socket) {
    throw TrainError(formatted("MASTER_ADDR={} MASTER_PORT={}: {}", named.host, named.port,
                               socket.error().message));
  }
  return *std::move(socket);
}

// The address at which rank 0 itself reaches the store that it serves.
std::string own_client_address(const Socket& listening, const std::string& numeric) {
  const std::string host = bound_host(listening).value_or(numeric);
  if (!is_any_address(host)) return host;
  return loopback_like(host == "::" ? numeric : host);
}

c10::intrusive_ptr<c10d::Store> serve_store(Launch& launch, const std::string& numeric,
                                            milliseconds timeout) {
  failpoint("bind");
  Socket& socket = launch.store_socket;
  if (!socket.open()) socket = bind_store(launch, numeric);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.env.master.port);
  options.isServer = true;
  options.numWorkers = launch.env.layout.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string host = own_client_address(socket, numeric);
  options.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

// The resolver's own limit is the site's, and may be minutes.
Result<std::string> resolve_host(const std::string& host, milliseconds timeout) {
  if (is_numeric(host)) return host;
  NameResolver resolver;
  resolver.start({host});
  pollfd event{resolver.event(), POLLIN, 0};
  poll(&event, 1, static_cast<int>(timeout.count()));
  if (auto found = resolver.find(host)) return *std::move(found);
  return Error{formatted("no name server answered within {}", seconds(timeout))};
}

// Numeric addresses.
struct StoreHost {
  std::string address;
  std::string towards;  // of this host, from which that one is reached
};

// All ranks have the error of a name that does not resolve, and rank 0 reports it. By hand each
// node does, whose hosts file or name server may be its own, as in a container.
bool is_reporter_of_name(const Launch& launch) {
  const Layout& at = launch.env.layout;
  return at.rank == 0 || (launch.is_by_hand && (at.local_rank == 0 || !launch.is_local_size_known));
}

// By hand a name may get its address after the start, as that of a pod, and this host its route. A
// launcher starts nothing on a node that it does not know.
Result<StoreHost> find_store_host(const Launch& launch, milliseconds timeout) {
  constexpr milliseconds kRetry{250}, kUntilLine{5000};
  const TorchEnv& env = launch.env;
  const auto begin = Clock::now(), deadline = begin + timeout;
  bool is_silent = is_reporter_of_name(launch);
  for (milliseconds left = timeout;;) {
    const auto address = resolve_host(env.master.host, left);
    const auto towards = address ? address_towards(*address, has_other_nodes(launch)) : address;
    if (towards) return StoreHost{*address, *towards};
    left = std::chrono::floor<milliseconds>(deadline - Clock::now()) - kRetry;
    if (!launch.is_by_hand || left.count() <= 0) return towards.error();
    if (is_silent && Clock::now() - begin >= kUntilLine) {
      is_silent = false;
      print_message(formatted("MASTER_ADDR={}: {}: rank {} looks it up again for {}",
                              env.master.host, towards.error().message, env.layout.rank,
                              seconds(left)));
    }
    std::this_thread::sleep_for(kRetry);
  }
}

// The store holds a connection to each rank, and gloo one from each rank to each other: more than
// the 1,024 descriptors that a login shell allows. Processes of other users may connect too: where
// gloo 2.11 has no descriptor for one, it ends this process.
void allow_connections() { static const RaisedDescriptorLimit until_the_program_ends; }

// A store that has just answered may be gone: TCPStore then tries twice, for its timeout each time.
constexpr int kTriesToConnect = 4;
constexpr milliseconds kLeastToConnect{1000};

std::string no_answer_error(const TorchEnv& env, const InitMethod& method) {
  const std::string server = env.use_agent_store ? "the agent, which serves it," : "rank 0";
  return formatted(
      "the store at {} does not answer: the process of {} is stopped, or its node hangs, or "
      "another service has the port; check that process",
      store_location(env.master, method), server);
}

// On each node another host's.
bool is_each_hosts_own(const std::string& address) {
  return is_loopback(address) || is_any_address(address);
}

// All ranks that cannot reach the store have the same error: one of them reports it.
bool is_client_reporter(const TorchEnv& env) {
  if (env.use_agent_store) return env.layout.rank == 0;
  if (is_each_hosts_own(env.master.host) && env.layout.node_rank > 0)
    return env.layout.node_rank == 1 && env.layout.local_rank == 0;
  return env.layout.rank == 1;
}

// Waits `left` for the store to answer; the request's timeout is the whole time to join, for
// messages and for later calls. Starts `stopped` once it has answered.
c10::intrusive_ptr<c10d::Store> reach_store(const Launch& launch, std::string& numeric,
                                            const JoinRequest& request, milliseconds left,
                                            AbortWatchdog& stopped) {
  const TorchEnv& env = launch.env;
  const milliseconds timeout = request.timeout;
  // By hand a name may lead elsewhere after a while, as that of a pod that was started again.
  std::function<std::string()> look_again;
  if (launch.is_by_hand) {
    look_again = [&] {
      constexpr milliseconds kForName{1000};
      if (auto found = resolve_host(env.master.host, kForName)) numeric = *std::move(found);
      return numeric;
    };
  }
  const StoreProbe probe =
      wait_for_store({numeric, env.master.port}, left, request.answer_timeout, look_again);
  const std::string address =
      formatted("MASTER_ADDR={} MASTER_PORT={}", env.master.host, env.master.port);
  const std::string agent = env.use_agent_store
                                ? "TORCHELASTIC_USE_AGENT_STORE=True means that an agent serves "
                                  "the store: unset it if torchrun did not start this program"
                                : "";
  if (probe.answer != StoreAnswer::kReady && !is_client_reporter(env)) throw PeerFailed();
  if (probe.answer == StoreAnswer::kNoAnswer)
    throw TrainError(no_answer_error(env, request.method));
  if (probe.answer == StoreAnswer::kForeign) {
    // Rank 0 could not bind the port and reports that, unless an agent serves the store or the
    // address is a loopback address, which is another host on each node.
    const bool is_other_host = is_each_hosts_own(numeric) && env.layout.node_rank > 0;
    if (!env.use_agent_store && !is_other_host) throw PeerFailed();
    throw TrainError(formatted(
        "the service at {} is not the store of this job ({}); {}", address, probe.detail,
        agent.empty() ? "set MASTER_ADDR to an address of rank 0's host that all nodes can reach"
                      : agent));
  }
  if (probe.answer == StoreAnswer::kUnreachable) {
    throw TrainError(formatted(
        "no store answers at {} after {} ({}); {}", address, seconds(timeout), probe.detail,
        agent.empty() ? formatted("check that rank 0 runs with WORLD_SIZE={} (with 1 it serves no "
                                  "store) and that this node can reach it",
                                  env.layout.world_size)
                      : agent));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master.port);
  options.timeout =
      std::max(std::min(left, request.answer_timeout) / kTriesToConnect, kLeastToConnect);
  stopped.start();
  auto store = c10::make_intrusive<c10d::TCPStore>(numeric, options);
  store->setTimeout(timeout);
  return store;
}

std::string run_of(const TorchEnv& env) {
  return env.run_id + "/" + std::to_string(env.restart_count);
}

// The key at the root of a store that rank 0 serves; its value is a token of the store, then the
// run and its attempt.
constexpr const char* kRun = "torchbridge run";

std::string identity_of(const TorchEnv& env) { return random_token() + " " + run_of(env); }

enum class StoreOwner {
  kThisGroup,
  kEarlierGroup,  // a group that this program was in before, or an earlier attempt: rank 0 has not
                  // closed its store yet
  kOtherRun
};

// Sets `run` to the run that the store names.
StoreOwner owner_of(const TorchEnv& env, const std::string& identity, std::string& run) {
  static std::mutex mutex;
  static std::set<std::string> joined;  // by this process, in which ranks may be threads
  const auto end = identity.find(' ');
  run = end == std::string::npos ? identity : identity.substr(end + 1);
  if (run == run_of(env)) {
    const std::scoped_lock lock(mutex);
    return joined.insert(identity + " " + std::to_string(env.layout.rank)).second
               ? StoreOwner::kThisGroup
               : StoreOwner::kEarlierGroup;
  }
  const auto slash = run.rfind('/');
  if (slash == std::string::npos || run.substr(0, slash) != env.run_id)
    return StoreOwner::kOtherRun;
  const auto attempt = parse_integer(std::string_view(run).substr(slash + 1), 0, INT32_MAX);
  return attempt && *attempt < env.restart_count ? StoreOwner::kEarlierGroup
                                                 : StoreOwner::kOtherRun;
}

// Checks the run of the store: a rank of another run would wait here for ranks that never join.
c10::intrusive_ptr<c10d::Store> reach_store_of_run(const Launch& launch, std::string& numeric,
                                                   const JoinRequest& request) {
  const TorchEnv& env = launch.env;
  constexpr milliseconds kRetry{20}, kAtLeast{1};
  const milliseconds timeout = request.timeout;
  const auto deadline = Clock::now() + timeout;
  const std::string named =
      formatted("the store at MASTER_ADDR={} MASTER_PORT={}", env.master.host, env.master.port);
  while (true) {
    const auto left = std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), kAtLeast);
    std::string error;
    try {
      const QuietC10d quiet(QuietC10d::kFatal);
      // Rank 0 sets the key as soon as it serves the store.
      AbortWatchdog stopped(request.answer_timeout, [&] { report_no_answer(env, request.method); });
      auto store = reach_store(launch, numeric, request, left, stopped);
      // So that a store without the key answers in time.
      store->setTimeout(std::min(left, request.answer_timeout / 2));
      std::string run;
      const StoreOwner owner = owner_of(env, get(*store, kRun), run);
      store->setTimeout(timeout);
      if (owner == StoreOwner::kThisGroup) return store;
      if (owner == StoreOwner::kOtherRun) {
        throw TrainError(formatted(
            "{} belongs to run '{}', but this is run '{}'; give each run its own MASTER_PORT",
            named, printable(run), printable(run_of(env))));
      }
      error = formatted(
          "{} still belongs to an earlier group after {}; check that rank 0 has left that group "
          "and joins this one",
          named, seconds(timeout));
    } catch (const c10::DistNetworkError&) {
      if (Clock::now() >= deadline) throw;  // else it was closed just now
    } catch (const c10::DistStoreError&) {
      error = formatted("{} contains no run id after {}; check that torchbridge serves it", named,
                        seconds(timeout));
    }
    if (Clock::now() >= deadline && is_client_reporter(env)) throw TrainError(error);
    if (Clock::now() >= deadline) throw PeerFailed();
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace

JoinedStore join_store(Launch& launch, const JoinRequest& request) {
  const TorchEnv& env = launch.env;
  if (env.layout.world_size > 1) allow_connections();
  no_reverse_lookups();
  const InitMethod& method = request.method;
  JoinedStore joined{.store = request.store, .own_address = "127.0.0.1", .served_by_rank_0 = {}};
  const bool is_given = request.store || method.kind == InitMethod::Kind::kFile;
  if (env.layout.world_size == 1 && !request.store) {
    joined.store = c10::make_intrusive<c10d::HashStore>();
  } else if (is_given) {
    if (!request.store) joined.store = open_file_store(method.path, env.layout, request.timeout);
    if (const auto address = reachable_address()) joined.own_address = *address;
  } else {
    auto host = find_store_host(launch, request.timeout);
    if (!host) {
      if (!is_reporter_of_name(launch)) throw PeerFailed();
      throw TrainError(
          formatted("MASTER_ADDR={}: {}; set it to a name or address of rank 0's host that all "
                    "nodes can reach",
                    env.master.host, host.error().message));
    }
    joined.own_address = host->towards;
    const bool serves = env.layout.rank == 0 && !env.use_agent_store;
    if (serves) {
      joined.store = serve_store(launch, host->address, request.timeout);
      failpoint("publish");
      put(*joined.store, kRun, identity_of(env));
    } else {
      AbortWatchdog stopped(request.answer_timeout, [&] { report_no_answer(env, request.method); });
      joined.store = env.use_agent_store
                         ? reach_store(launch, host->address, request, request.timeout, stopped)
                         : reach_store_of_run(launch, host->address, request);
    }
    if (!env.use_agent_store) joined.served_by_rank_0 = Endpoint{host->address, env.master.port};
  }
  // After a restart by an agent the store still holds the keys of the attempt before.
  const std::string name = request.group_name.empty() ? "" : "/" + request.group_name;
  joined.store =
      c10::make_intrusive<c10d::PrefixStore>("torchbridge/" + run_of(env) + name, joined.store);
  joined.store->setTimeout(request.timeout);
  return joined;
}

milliseconds longest_join(milliseconds timeout) {
  // Each at most `timeout`: for the address of the store's host, for the store, for rank 0's world
  // size and for its verdict.
  constexpr int kWaits = 4;
  constexpr milliseconds kGrace{5000};
  return kWaits * timeout + kGrace;
}

void report_no_answer(const TorchEnv& env, const InitMethod& method) {
  if (is_client_reporter(env)) return print_error(env.layout.rank, no_answer_error(env, method));
  // A launcher that ends all ranks when one has failed would also end the reporter.
  constexpr milliseconds kUntilReported{1000};
  std::this_thread::sleep_for(kUntilReported);
}

}  // namespace torchbridge::train
