#include <torchbridge/train/process_group.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <dirent.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/net/did_not_come.h>
#include <torchbridge/net/random_token.h>
#include <torchbridge/train/heartbeat.h>
#include <torchbridge/train/join_store.h>
#include <torchbridge/train/store_keys.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// How long the rank that speaks for a broken group collects who is still there.
constexpr milliseconds kCollect{1000};
constexpr milliseconds kPartingTimeout{10'000};

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
  std::chrono::milliseconds silence{};
  std::unique_ptr<Heartbeat> heartbeat;  // cuts the others, so it ends before them; null where none was asked for

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
    throw TrainError("cannot form the process group at " + where(launch.env.master, options.init_method) + ": " + one_line(error));
  }
}

ProcessGroup::~ProcessGroup() {
  if (!connections_) return;
  connections_->heartbeat.reset();
  connections_->cut();
  connections_->group.reset();
  connections_->store.reset();
}

void ProcessGroup::join(Launch& launch, const GroupOptions& options) {
  const milliseconds patience = std::min(options.join_timeout, options.timeout);
  const JoinedStore joined = join_store(launch, options.init_method, patience);
  const auto& store = connections_->store = joined.store;

  auto gloo_options = c10d::ProcessGroupGloo::Options::create(patience);
  gloo_options->devices = gloo_devices(joined.own_address);
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
  if (layout_.world_size > 1 && options.silence.count() > 0) start_heartbeat(joined.own_address, options);
}

void ProcessGroup::start_heartbeat(const std::string& own_address, const GroupOptions& options) {
  c10d::Store& store = *connections_->store;
  HeartbeatOptions heart{.silence = options.silence, .on_loss = [connections = connections_.get()] { connections->cut(); }};
  connections_->silence = options.silence;
  auto started = [&]() -> Result<std::unique_ptr<Heartbeat>> {
    if (is_first()) {
      heart.token = random_token();
      auto served = Heartbeat::serve(own_address, heart);
      if (served) put(store, "heartbeat", heart.token + " " + (*served)->endpoint().host + " " + std::to_string((*served)->endpoint().port));
      return served;
    }
    std::istringstream words(get(store, "heartbeat"));
    Endpoint server;
    words >> heart.token >> server.host >> server.port;
    return Heartbeat::join(server, rank(), heart);
  }();
  if (!started) throw TrainError("the ranks cannot tell each other that they live: " + started.error().message);
  connections_->heartbeat = std::move(*started);
}

// "rank 1 on n1 says".
std::string ProcessGroup::silent_ranks(const std::vector<int>& lost) {
  std::string nodes;
  constexpr std::size_t kNamed = 8;
  const bool store_lives = std::ranges::count(lost, 0) == 0;
  for (std::size_t i = 0; store_lives && i < std::min(lost.size(), kNamed); ++i) {
    const std::string node = get(*connections_->store, key("joined", lost[i]));
    if (nodes.find(node) == std::string::npos) nodes += (nodes.empty() ? " on " : ", ") + node;
  }
  return list_of(lost) + nodes + (lost.size() == 1 ? " says" : " say");
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
  connections_->heartbeat.reset();
  connections_->group.reset();
  connections_.reset();
}

const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const { return connections_->group; }

std::string one_line(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = c10_error ? c10_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find("\nException raised from"));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::optional<std::string> ProcessGroup::message_for(const std::exception& error) {
  if (!connections_) return one_line(error);
  const bool lost = is_lost_connection(error);
  const bool silent = dynamic_cast<const PeerFailed*>(&error) != nullptr;
  std::optional<std::string> message;
  if (!lost && !silent) message = one_line(error);
  connections_->cut();
  const std::vector<int> stopped = connections_->heartbeat && !message ? connections_->heartbeat->lost() : std::vector<int>();
  c10d::Store& store = *connections_->store;
  try {
    if (!stopped.empty()) {
      store.setTimeout(kCollect);
      int speaker = 0;
      while (std::ranges::count(stopped, speaker) > 0) ++speaker;
      if (rank() != speaker) return std::nullopt;
      return silent_ranks(stopped) + " nothing for " + seconds(connections_->silence) + ": stopped, or the node hangs";
    }
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
