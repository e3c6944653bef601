#include <torchbridge/train/group/join_store.h>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/many_descriptors.h>
#include <torchbridge/net/name_resolver.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/failpoint.h>
#include <torchbridge/train/group/places.h>
#include <torchbridge/train/group/reverse_lookups.h>
#include <torchbridge/train/group/store_probe.h>
#include <torchbridge/train/group/store_keys.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How much longer than rank 0 the others wait for its verdict on who came.
constexpr milliseconds kVerdictGrace{3000};
// How long rank 0 waits until they have read it.
constexpr milliseconds kInformed{1000};

std::string seconds(milliseconds time) { return std::to_string((time.count() + 500) / 1000) + " s"; }

// Bound to the address of the store alone where that can be: not all interfaces, as TCPStore would.
Socket bind_store(const Endpoint& named, const std::string& numeric, bool several_nodes) {
  Endpoint address{numeric, named.port};
  // Others would reach somebody else there, and blame him.
  if (!is_own_address(numeric)) {
    throw TrainError("MASTER_ADDR=" + named.host + " is no address of " + host_name() +
                     ", where rank 0 runs; set it to one that all nodes can reach, or unset it under srun and mpirun");
  }
  const bool others_come_elsewhere = several_nodes && is_loopback(numeric);
  if (others_come_elsewhere) {
    address.host = numeric.find(':') == std::string::npos ? "0.0.0.0" : "::";
  }
  auto socket = listen_on(address);
  if (!socket) {
    throw TrainError("MASTER_ADDR=" + named.host + " MASTER_PORT=" + std::to_string(named.port) + ": " +
                     socket.error().message);
  }
  return *std::move(socket);
}

// Where rank 0 itself reaches the store that it serves.
std::string own_client_address(int listening, const std::string& numeric) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(listening, reinterpret_cast<sockaddr*>(&bound), &size);
  char host[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  const std::string_view text = host;
  if (text == "0.0.0.0") return "127.0.0.1";
  if (text == "::") return numeric.find(':') == std::string::npos ? "127.0.0.1" : "::1";
  return host;
}

c10::intrusive_ptr<c10d::Store> serve_store(Launch& launch, const std::string& numeric, milliseconds timeout) {
  failpoint("bind");
  Socket& socket = launch.store_socket;
  if (!socket.open()) socket = bind_store(launch.env.master, numeric, launch.env.layout.node_count > 1);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.env.master.port);
  options.isServer = true;
  options.numWorkers = launch.env.layout.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string host = own_client_address(socket.descriptor(), numeric);
  options.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

// The resolver's own limit is the site's, and may be minutes.
Result<std::string> looked_up(const std::string& host, milliseconds patience) {
  if (is_numeric(host)) return host;
  NameResolver resolver;
  resolver.start({host});
  pollfd news{resolver.news(), POLLIN, 0};
  poll(&news, 1, static_cast<int>(patience.count()));
  if (auto found = resolver.find(host)) return *std::move(found);
  return Error{"no name server has answered within " + seconds(patience)};
}

// The store holds a connection to each rank, and gloo one from each rank to each other: more than the 1,024 descriptors that a login
// shell allows.
void allow_connections(int world_size) {
  constexpr int kOthers = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(world_size) + kOthers) return;
  static const ManyDescriptors until_the_program_ends;
}

// All ranks that find nobody at the store's address find the same: one of them says it.
bool speaks_for_clients(const TorchEnv& env) {
  if (env.use_agent_store) return env.layout.rank == 0;
  if (is_loopback(env.master.host) && env.layout.node_rank > 0) return env.layout.node_rank == 1 && env.layout.local_rank == 0;
  return env.layout.rank == 1;
}

c10::intrusive_ptr<c10d::Store> reach_store(const TorchEnv& env, const std::string& numeric, milliseconds timeout) {
  const auto start = Clock::now();
  const StoreProbe probe = wait_for_store({numeric, env.master.port}, timeout);
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  const std::string place = "MASTER_ADDR=" + env.master.host + " MASTER_PORT=" + std::to_string(env.master.port);
  const std::string agent = env.use_agent_store
      ? "TORCHELASTIC_USE_AGENT_STORE=True says that an agent serves the store: unset it where no torchrun started this"
      : "";
  if (probe.answer == StoreAnswer::kForeign) {
    // Rank 0 could not have the port and says so, unless an agent serves the store or each node means itself by the address.
    const bool each_node_itself = is_loopback(numeric) && env.layout.node_rank > 0;
    if (!env.use_agent_store && !each_node_itself) throw PeerFailed();
    if (!speaks_for_clients(env)) throw PeerFailed();
    throw TrainError("what listens at " + place + " is not the store of this job (" + probe.detail + "); " +
                     (agent.empty() ? "set MASTER_ADDR to an address of rank 0's host that all nodes can reach" : agent));
  }
  if (probe.answer == StoreAnswer::kNobody) {
    if (!speaks_for_clients(env)) throw PeerFailed();
    throw TrainError("nobody serves the store at " + place + " after " + seconds(waited) + " (" + probe.detail + "); " +
                     (agent.empty() ? "is rank 0 running, and can this node reach it?" : agent));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master.port);
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(numeric, options);
}

std::string run_of(const TorchEnv& env) { return env.run_id + "/" + std::to_string(env.restart_count); }

// A rank of another run, or of an attempt before, would wait here for ranks that never come.
void check_run(c10d::Store& store, const TorchEnv& env, bool serves) {
  constexpr const char* kRun = "torchbridge run";
  if (serves) {
    failpoint("publish");
    return put(store, kRun, run_of(env));
  }
  const std::string served = get(store, kRun);
  if (served == run_of(env)) return;
  throw TrainError("the store at MASTER_ADDR=" + env.master.host + " MASTER_PORT=" + std::to_string(env.master.port) +
                   " is that of run '" + printable(served) + "', and this is '" + printable(run_of(env)) +
                   "'; two runs at once need two values of MASTER_PORT");
}

// Set by a rank that cannot take part and has said why.
constexpr const char* kRefused = "refused";

// gloo would wait for ranks that are only in one of two counts.
void agree_on_world_size(c10d::Store& store, const Layout& layout) {
  const std::string own = std::to_string(layout.world_size);
  if (layout.rank == 0) return put(store, "world size", own);
  const std::string served = get(store, "world size");
  if (served == own) return;
  put(store, kRefused, "yes");
  announce(store, layout);  // rank 0 need not wait for it
  put(store, key("informed", layout.rank), "yes");
  throw TrainError("this rank is one of " + own + " (WORLD_SIZE), but by rank 0 there are " + printable(served));
}

// In a file that a killed run left every rank finds itself: one says it.
bool rank_0_is_doubled(c10d::Store& store) {
  constexpr milliseconds kTime{2000}, kPause{20};
  const auto deadline = Clock::now() + kTime;
  while (store.add(key("claim", 0), 0) < 2) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// Whether this rank is the one that says what several have found.
bool speaks_of(c10d::Store& store, const std::string& trouble) {
  put(store, kRefused, "yes");
  return store.add("trouble/" + trouble, 1) == 1;
}

std::string advice_for(const InitMethod& method) {
  if (method.kind == InitMethod::Kind::kFile) return "does its node see this file?";
  if (method.kind == InitMethod::Kind::kStore) return "was it given the same store?";
  return "does MASTER_ADDR lead here from its node?";
}

void claim(c10d::Store& store, const TorchEnv& env, const InitMethod& method) {
  const int rank = env.layout.rank;
  if (store.add(key("claim", rank), 1) == 1) return;
  const bool is_file = method.kind == InitMethod::Kind::kFile;
  if (is_file && rank != 0 && rank_0_is_doubled(store)) throw PeerFailed();
  const std::string way_out = is_file ? "remove the file if it is left from a run that was killed, or name another one"
                              : method.kind == InitMethod::Kind::kStore ? "a second group at one store needs another group_name"
                                                                        : "two runs need two values of MASTER_PORT";
  throw TrainError("another process is already rank " + std::to_string(rank) + " of the run '" + printable(env.run_id) + "' at " +
                   where(env.master, method) + "; " + way_out);
}

// Rank 0 waits for all and gives the verdict, which the others wait for: one message where somebody is missing.
void meet(c10d::Store& store, const Launch& launch, const JoinRequest& request) {
  failpoint("join");
  const Layout& layout = launch.env.layout;
  claim(store, launch.env, request.method);
  agree_on_world_size(store, layout);
  const bool speaks = request.trouble && speaks_of(store, *request.trouble);
  announce(store, layout);
  if (layout.rank != 0) {
    if (request.trouble) put(store, key("informed", layout.rank), "yes");
    if (speaks) throw TrainError(*request.trouble);
    if (request.trouble) throw PeerFailed();
    store.wait({"verdict"}, request.patience + kVerdictGrace);
    if (get(store, "verdict") == "all") return;
    put(store, key("informed", layout.rank), "yes");
    throw PeerFailed();
  }
  const std::vector<int> missing = missing_after(store, "joined", all_ranks(layout.world_size), request.patience);
  const bool refused = store.check({kRefused});
  if (missing.empty() && !refused) return put(store, "verdict", "all");

  put(store, "verdict", "incomplete");
  std::vector<int> present = all_ranks(layout.world_size);
  std::erase_if(present, [&](int rank) { return std::ranges::count(missing, rank) > 0; });
  const std::vector<Place> places = places_of(store, present);
  std::erase(present, 0);
  missing_after(store, "informed", present, kInformed);
  if (speaks) throw TrainError(*request.trouble);
  if (refused) throw PeerFailed();
  throw TrainError(with_nodes(missing, launch, places) + " of " + std::to_string(layout.world_size) + " did not join at " +
                   where(launch.env.master, request.method) + " within " + seconds(request.patience) +
                   "; was every rank started, and " + advice_for(request.method));
}

// FileStore would wait for ever for a folder that is not there, and say nothing of one that cannot be written to.
c10::intrusive_ptr<c10d::Store> open_file(const std::string& path, int world_size) {
  const Socket file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.open()) throw TrainError("file://" + path + ": " + std::strerror(errno) + "; all ranks must be able to write it");
  return c10::make_intrusive<c10d::FileStore>(path, world_size);
}

}  // namespace

JoinedStore join_store(Launch& launch, const JoinRequest& request) {
  const TorchEnv& env = launch.env;
  allow_connections(env.layout.world_size);
  no_reverse_lookups();
  const InitMethod& method = request.method;
  JoinedStore joined{.store = request.store, .own_address = "127.0.0.1"};
  const bool is_given = request.store || method.kind == InitMethod::Kind::kFile;
  if (env.layout.world_size == 1 && !request.store) {
    joined.store = c10::make_intrusive<c10d::HashStore>();
  } else if (is_given) {
    if (!request.store) joined.store = open_file(method.path, env.layout.world_size);
    if (const auto address = reachable_address()) joined.own_address = *address;
  } else {
    const auto numeric = looked_up(env.master.host, request.patience);
    const auto towards = numeric ? address_towards(*numeric, env.layout.node_count > 1) : numeric;
    if (!towards) {
      // Every rank finds it, unless its node differs; of that one rank 0 says that it did not join.
      if (env.layout.rank != 0) throw PeerFailed();
      throw TrainError("MASTER_ADDR=" + env.master.host + ": " + towards.error().message +
                       "; set it to a name or address of rank 0's host that all nodes can reach");
    }
    joined.own_address = *towards;
    const bool serves = env.layout.rank == 0 && !env.use_agent_store;
    joined.store = serves ? serve_store(launch, *numeric, request.patience) : reach_store(env, *numeric, request.patience);
    if (!env.use_agent_store) check_run(*joined.store, env, serves);
  }
  // A restart below an agent finds the store of the attempt before.
  const std::string name = request.group_name.empty() ? "" : "/" + request.group_name;
  joined.store = c10::make_intrusive<c10d::PrefixStore>("torchbridge/" + run_of(env) + name, joined.store);
  joined.store->setTimeout(request.patience);
  meet(*joined.store, launch, request);
  return joined;
}

std::string where(const Endpoint& endpoint, const InitMethod& method) {
  if (method.kind == InitMethod::Kind::kFile) return "file://" + method.path;
  if (method.kind == InitMethod::Kind::kStore) return "the given store";
  return endpoint.host + " port " + std::to_string(endpoint.port);
}

}  // namespace torchbridge::train
