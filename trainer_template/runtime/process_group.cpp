#include <torchbridge/train/process_group.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <dirent.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/train/store_address.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <thread>

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long the rank that speaks for a broken group collects who is still there.
constexpr milliseconds kCollect{1000};
// How much longer than rank 0 the others wait for its verdict on who came.
constexpr milliseconds kVerdictGrace{3000};
constexpr milliseconds kPartingTimeout{10'000};
constexpr milliseconds kPoll{10};

std::string where(const Endpoint& endpoint) { return endpoint.host + " port " + std::to_string(endpoint.port); }

std::string seconds(milliseconds time) { return std::to_string((time.count() + 500) / 1000) + " s"; }

std::string list_of(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i ? "," : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

// gloo has no way to end its connections at once; their descriptors are those that came while it was set up.
std::set<int> open_sockets() {
  std::set<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return found;
  while (const dirent* entry = readdir(folder)) {
    const auto number = parse_integer(entry->d_name, 0, 1 << 30);
    int type = 0;
    socklen_t size = sizeof type;
    if (number && getsockopt(static_cast<int>(*number), SOL_SOCKET, SO_TYPE, &type, &size) == 0) {
      found.insert(static_cast<int>(*number));
    }
  }
  closedir(folder);
  return found;
}

// An error of the network or of another rank, not of this one.
bool is_lost_connection(const std::exception& error) {
  if (dynamic_cast<const TrainError*>(&error)) return false;
  if (dynamic_cast<const c10::DistError*>(&error)) return true;
  const std::string_view text = error.what();
  return text.find("gloo") != std::string_view::npos;
}

bool is_timeout(std::string_view text) {
  return text.find("imed out") != std::string_view::npos || text.find("imeout") != std::string_view::npos;
}

// Bound to the address of the store alone where that can be: not all interfaces, as TCPStore would.
Socket bind_store(const Endpoint& named, const std::string& numeric, bool several_nodes) {
  Endpoint address{numeric, named.port};
  const bool others_come_elsewhere = several_nodes && is_loopback(numeric);
  if (!is_own_address(numeric) || others_come_elsewhere) {
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

c10::intrusive_ptr<c10d::Store> reach_store(const TorchEnv& env, const std::string& numeric, milliseconds timeout) {
  const auto start = Clock::now();
  const StoreProbe probe = wait_for_store({numeric, env.master.port}, timeout);
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  if (probe.answer == StoreAnswer::kForeign) {
    const std::string message = "what listens at MASTER_ADDR=" + env.master.host +
                                " MASTER_PORT=" + std::to_string(env.master.port) + " is not the store of this job (" +
                                probe.detail + "); set MASTER_PORT to a free port";
    // Rank 0 could not have the port and says so, unless an agent serves the store or each node means itself by the address.
    const bool rank_0_knows = !env.use_agent_store && !(is_loopback(numeric) && env.layout.node_rank > 0);
    if (rank_0_knows) throw PeerFailed();
    throw TrainError(message);
  }
  if (probe.answer == StoreAnswer::kNobody) {
    throw TrainError("nobody serves the store at MASTER_ADDR=" + env.master.host + " MASTER_PORT=" +
                     std::to_string(env.master.port) + " after " + seconds(waited) + " (" + probe.detail +
                     "); is rank 0 running, and can this node reach it?");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master.port);
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(numeric, options);
}

std::string key(const char* what, int rank) { return std::string(what) + "/" + std::to_string(rank); }

void put(c10d::Store& store, const std::string& name, const std::string& text) {
  store.set(name, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string get(c10d::Store& store, const std::string& name) {
  const std::vector<std::uint8_t> bytes = store.get(name);
  return {bytes.begin(), bytes.end()};
}

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Those of the ranks that have not set their key `what`, as soon as all have or when the time is over.
std::vector<int> missing_after(c10d::Store& store, const char* what, std::vector<int> ranks, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (true) {
    std::erase_if(ranks, [&](int rank) { return store.check({key(what, rank)}); });
    if (ranks.empty() || Clock::now() >= deadline) return ranks;
    std::this_thread::sleep_for(kPoll);
  }
}

// Rank 0 waits for all and gives the verdict, which the others wait for: one message where somebody is missing.
void meet(c10d::Store& store, const TorchEnv& env, milliseconds timeout) {
  const Layout& layout = env.layout;
  if (store.add(key("claim", layout.rank), 1) > 1) {
    throw TrainError("another process is already rank " + std::to_string(layout.rank) + " of the run '" +
                     printable(env.run_id) + "' at " + where(env.master) +
                     "; two runs need two values of MASTER_PORT");
  }
  put(store, key("joined", layout.rank), "yes");
  if (layout.rank != 0) {
    store.wait({"verdict"}, timeout + kVerdictGrace);
    if (get(store, "verdict") != "all") throw PeerFailed();
    return;
  }
  const std::vector<int> missing = missing_after(store, "joined", all_ranks(layout.world_size), timeout);
  if (!missing.empty()) {
    put(store, "verdict", "incomplete");
    throw TrainError(list_of(missing) + " of " + std::to_string(layout.world_size) + " did not join at " +
                     where(env.master) + " within " + seconds(timeout) +
                     "; was every rank started, and does MASTER_ADDR lead here from its node?");
  }
  put(store, "verdict", "all");
}

std::vector<std::shared_ptr<gloo::transport::Device>> gloo_devices(const std::string& own_address) {
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  const char* names = std::getenv("GLOO_SOCKET_IFNAME");
  if (names && *names) {
    std::string_view rest = names;
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(std::string(rest.substr(0, comma))));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  } else {
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(own_address));
  }
  return devices;
}

// Rank 0 may serve the store, which the others need until they have spoken.
void linger(c10d::Store& store, int world_size) {
  std::vector<int> alive = all_ranks(world_size);
  for (int gone : missing_after(store, "ended", alive, kCollect)) std::erase(alive, gone);
  missing_after(store, "done", alive, 2 * kCollect);
}

std::string loss(const std::vector<int>& missing, const std::string& error) {
  const std::string who = missing.empty() ? "another rank" : list_of(missing);
  if (is_timeout(error)) return who + " did not take part in a collective in time: stopped, or stuck";
  return "the connection to " + who + " was lost: killed, crashed, or its node is unreachable";
}

}  // namespace

struct ProcessGroup::Connections {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::set<int> gloo_sockets;

  // Reads and writes fail at once from here on, also those that wait in other threads.
  void cut() const {
    for (int descriptor : gloo_sockets) ::shutdown(descriptor, SHUT_RDWR);
  }
};

ProcessGroup::ProcessGroup(Launch launch, const GroupOptions& options)
    : layout_(launch.env.layout), launcher_(launch.launcher), connections_(std::make_unique<Connections>()) {
  try {
    join(launch, options);
  } catch (const TrainError&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_lost_connection(error)) throw;
    throw TrainError("cannot form the process group at " + where(launch.env.master) + ": " + error.what());
  }
}

ProcessGroup::~ProcessGroup() {
  if (!connections_) return;
  connections_->cut();
  connections_->group.reset();
  connections_->store.reset();
}

void ProcessGroup::join(Launch& launch, const GroupOptions& options) {
  const TorchEnv& env = launch.env;
  const milliseconds patience = std::min(options.join_timeout, options.timeout);
  std::string own_address = "127.0.0.1";
  c10::intrusive_ptr<c10d::Store> store;
  if (layout_.world_size == 1) {
    store = c10::make_intrusive<c10d::HashStore>();
  } else {
    const auto resolved = numeric_address(env.master.host);
    if (!resolved) throw TrainError("MASTER_ADDR: " + resolved.error().message);
    const std::string& numeric = *resolved;
    own_address = value_or_throw(address_towards(numeric, layout_.node_count > 1));
    store = layout_.rank == 0 && !env.use_agent_store ? serve_store(launch, numeric, patience)
                                                      : reach_store(env, numeric, patience);
  }
  // A restart below an agent finds the store of the attempt before.
  const std::string run = "torchbridge/" + env.run_id + "/" + std::to_string(env.restart_count);
  store = c10::make_intrusive<c10d::PrefixStore>(run, store);
  store->setTimeout(patience);
  connections_->store = store;
  meet(*store, env, patience);

  auto gloo_options = c10d::ProcessGroupGloo::Options::create(patience);
  gloo_options->devices = gloo_devices(own_address);
  gloo_options->threads = static_cast<int>(gloo_options->devices.size()) * 2;
  const std::set<int> before = open_sockets();
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), layout_.rank, layout_.world_size, gloo_options);
  gloo->setTimeout(options.timeout);
  std::ranges::set_difference(open_sockets(), before,
                              std::inserter(connections_->gloo_sockets, connections_->gloo_sockets.end()));

  auto& group = connections_->group;
  group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::PrefixStore>("group", store),
                                                  layout_.rank, layout_.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("torchbridge");
}

void ProcessGroup::barrier() { connections_->group->barrier()->wait(); }

void ProcessGroup::sum(const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors = {tensor};
  connections_->group->allreduce(tensors)->wait();
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  connections_->group->broadcast(tensors, options)->wait();
}

std::int64_t ProcessGroup::minimum(std::int64_t value) {
  std::vector<at::Tensor> tensors = {at::full({1}, value, at::kLong)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  connections_->group->allreduce(tensors, options)->wait();
  return tensors[0].const_data_ptr<std::int64_t>()[0];
}

std::string ProcessGroup::broadcast(const std::string& text, int root) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  broadcast(size, root);
  const at::Tensor bytes = at::empty({size.const_data_ptr<std::int64_t>()[0]}, at::kByte);
  if (bytes.numel() == 0) return {};
  if (rank() == root) std::memcpy(bytes.mutable_data_ptr<std::uint8_t>(), text.data(), text.size());
  broadcast(bytes, root);
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(bytes.numel())};
}

std::vector<std::string> ProcessGroup::all_gather(const std::string& text) {
  // Tensors of one size: eight bytes of length, then the text.
  const std::int64_t longest = -minimum(-static_cast<std::int64_t>(text.size()));
  at::Tensor own = at::zeros({8 + longest}, at::kByte);
  const std::uint64_t size = text.size();
  std::memcpy(own.mutable_data_ptr<std::uint8_t>(), &size, 8);
  std::memcpy(own.mutable_data_ptr<std::uint8_t>() + 8, text.data(), size);

  std::vector<at::Tensor> inputs = {own};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < world_size(); ++i) outputs[0].push_back(at::empty_like(own));
  connections_->group->allgather(outputs, inputs)->wait();

  std::vector<std::string> texts;
  for (const at::Tensor& output : outputs[0]) {
    const auto* bytes = output.const_data_ptr<std::uint8_t>();
    std::uint64_t length = 0;
    std::memcpy(&length, bytes, 8);
    texts.emplace_back(reinterpret_cast<const char*>(bytes) + 8, length);
  }
  return texts;
}

void ProcessGroup::leave() {
  c10d::BarrierOptions options;
  options.timeout = kPartingTimeout;
  connections_->group->barrier(options)->wait();
  connections_->group.reset();
  connections_.reset();
}

const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const { return connections_->group; }

std::optional<std::string> ProcessGroup::message_for(const std::exception& error) {
  if (!connections_) return error.what();
  const bool lost = is_lost_connection(error);
  const bool silent = dynamic_cast<const PeerFailed*>(&error) != nullptr;
  std::optional<std::string> message;
  if (!lost && !silent) message = error.what();
  connections_->cut();
  c10d::Store& store = *connections_->store;
  try {
    store.setTimeout(kCollect);
    put(store, key("ended", rank()), "yes");
    if (message) {
      // A rank with trouble of its own tells it, and where several have the same, the first one.
      put(store, "own trouble", "yes");
      if (store.add("trouble/" + *message, 1) > 1) message.reset();
    } else if (lost && store.add("reporters", 1) == 1) {
      // Those that are alive notice within milliseconds, for their connections to this rank are cut.
      const std::vector<int> missing = missing_after(store, "ended", all_ranks(world_size()), kCollect);
      if (!missing.empty() || !store.check({"own trouble"})) message = loss(missing, error.what());
    }
    put(store, key("done", rank()), "yes");
    if (is_first()) linger(store, world_size());
  } catch (const std::exception&) {
    // The store is gone, and rank 0 with it.
    if (lost && !message && rank() == 1) message = loss({0}, "");
  }
  return message;
}

}  // namespace torchbridge::train
