#include "trainer_template/runtime/process_group/process_group.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>
#include <thread>

#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include "bridge/net/random_token.h"
#include "trainer_template/runtime/backends/cuda.h"
#include "trainer_template/runtime/backends/cuda_devices.h"
#include "trainer_template/runtime/backends/gloo_backend.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/base/ignored_signals.h"
#include "trainer_template/runtime/process_group/failure_report.h"
#include "trainer_template/runtime/process_group/form_group.h"
#include "trainer_template/runtime/process_group/heartbeat.h"
#include "trainer_template/runtime/rendezvous/abort_watchdog.h"
#include "trainer_template/runtime/rendezvous/join_store.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// As torch.distributed: constants.py and its default for NCCL.
constexpr milliseconds kNcclTimeout = std::chrono::minutes(10), kOtherTimeout = std::chrono::minutes(30);
// Of the abort watchdog: message_for() and the end of the group take about two seconds.
constexpr milliseconds kAbortTimeout{5000};
// How much longer than for a heartbeat a rank waits for an answer of the store, which serves all ranks at once.
constexpr milliseconds kBusyStore{4000};
// Until the reporter of a loss has printed: a launcher that ends all ranks when one has failed would end it too.
constexpr milliseconds kUntilReported{1000};

bool has(const std::vector<DeviceBackend>& backends, std::string_view name) {
  return std::ranges::count(backends, name, &DeviceBackend::backend) > 0;
}

c10::Device device_for(const GroupOptions& options, const Layout& layout) {
  const std::optional<c10::Device>& requested = options.device_id;
  if (!requested || requested->is_cpu()) return c10::Device(c10::kCPU);
  if (!requested->is_cuda()) throw TrainError("device_id " + requested->str() + ": expected cpu, cuda or cuda:INDEX");
  const CudaDevices devices = cuda_devices();
  const int index =
      value_or_throw(requested->has_index() ? gpu_at(requested->index(), devices) : gpu_of(layout, devices));
  if (options.check_gpu) value_or_throw(options.check_gpu(devices.gpus[index]));
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

// Before the device is looked up, whose error would not name the backend that needs a GPU.
void check_nccl(const GroupOptions& options) {
  if (!has(value_or_throw(parse_backends(options.backend, "cpu")), "nccl")) return;
  const CudaDevices devices = cuda_devices();
  if (!devices.gpus.empty()) return;
  throw TrainError("backend 'nccl' needs a GPU, but " + text_of(devices) + "; use gloo on the CPU");
}

std::vector<DeviceBackend> backends_for(const GroupOptions& options, c10::Device device) {
  c10d::setDebugLevelFromEnvironment();
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  return backends_of(value_or_throw(parse_backends(options.backend, type)));
}

bool is_gloo_alone(const GroupOptions& options) {
  const bool on_gpu = options.device_id && !options.device_id->is_cpu();
  const auto backends = parse_backends(options.backend, on_gpu ? "cuda" : "cpu");
  return backends && std::ranges::all_of(*backends, [](const auto& one) { return one.backend == "gloo"; });
}

// For ncclCommSplit: the same on all ranks of a subgroup, and different for two subgroups but for hash collisions.
int color_of(const std::vector<int>& ranks) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (int rank : ranks) hash = (hash ^ static_cast<std::uint32_t>(rank)) * 16777619U;
  return static_cast<int>(hash & 0x7fffffffU);
}

// On rank 0: a killed rank's connections close one after the other, gloo's perhaps before the heartbeat's. Not found
// within the time, the ranks wait longer for each other.
void wait_for_lost_ranks(const Heartbeat& heartbeat) {
  constexpr milliseconds kTogether{100}, kPause{1};
  const auto deadline = std::chrono::steady_clock::now() + kTogether;
  const auto is_known = [&] {
    return !heartbeat.closed().empty() || !heartbeat.aborted_ranks().empty() || !heartbeat.lost().empty();
  };
  while (!is_known() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kPause);
}

}  // namespace

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::Store> store;  // of the ranks' locations, errors and heartbeat
  JoinResult join_result;
  c10::intrusive_ptr<c10d::Store> group_stores;  // the parent of all groups' stores
  std::vector<DeviceBackend> backends;
  BackendRequest request;  // the fields that are the same for all groups
  int groups = 0;          // number of groups made: the name of the next one
  milliseconds heartbeat_timeout{};
  const Launch* launch = nullptr;      // until the group is formed
  std::string location;                // of the store, for messages
  std::atomic<bool> is_joining{true};  // until all ranks have joined
  std::atomic<bool> is_formed{false};  // and their backends have connected
  bool is_gloo_alone = false;
  std::shared_ptr<Connections> connections = std::make_shared<Connections>();
  std::mutex message_mutex;
  const std::exception* error = nullptr;  // of message_for(), once that is called
  bool is_reported = false;               // a thread makes the message of this rank
  std::optional<std::string> message;     // as soon as it is made
  // Null where it is off. Its thread starts the watchdog and aborts the connections, so end() and leave() stop it.
  std::unique_ptr<Heartbeat> heartbeat;           // set under message_mutex, because the watchdog's thread reads it
  std::unique_ptr<AbortWatchdog> abort_watchdog;  // null without a heartbeat; the last member: it uses all others

  BackendRequest next(int rank, int size) {
    BackendRequest own = request;
    own.rank = rank;
    own.size = size;
    own.store = group_stores;
    own.group_name = std::to_string(groups++);
    return own;
  }

  // Any thread.
  BrokenGroup broken_group(int rank, int world_size) const {
    BrokenGroup broken{.store = *store,
                       .rank = rank,
                       .world_size = world_size,
                       .join_result = join_result,
                       .waited = connections->waited(),
                       .heartbeat_timeout = heartbeat_timeout};
    if (!heartbeat) return broken;
    broken.lost = heartbeat->lost();
    broken.hung_up = heartbeat->hung_up();
    broken.aborted_ranks = heartbeat->aborted_ranks();
    broken.closed = heartbeat->closed();
    return broken;
  }

  // Over a connection of its own: on that of the store another thread may wait.
  std::string hosts_without_waiting(const std::vector<int>& ranks) const {
    try {
      const bool has_store = std::ranges::count(ranks, 0) == 0 || !join_result.served_by_rank_0;
      const auto own = has_store ? store->clone() : store;
      if (has_store) own->setTimeout(kUntilReported);
      return with_hosts({.store = *own, .join_result = join_result}, ranks);
    } catch (const std::exception&) {
      return list_of(ranks);
    }
  }

  // The message of this rank about ranks that were lost before the group was formed; nothing where another rank reports
  // it.
  std::optional<std::string> early_loss_message(const std::vector<int>& lost, bool hung_up) const {
    int reporter = 0;  // the lowest rank that is left
    while (std::ranges::count(lost, reporter) > 0) ++reporter;
    if (launch->env.layout.rank != reporter) return std::nullopt;
    const auto aborted = heartbeat->aborted_ranks();  // they report their own errors
    const auto has_aborted = [&](int rank) { return std::ranges::count(aborted, rank) > 0; };
    if (hung_up && std::ranges::all_of(lost, has_aborted)) return std::nullopt;
    const std::string who = is_joining ? with_nodes(lost, *launch, {}) : hosts_without_waiting(lost);
    return hung_up ? lost_connection_error(who) : no_heartbeat_error(who, heartbeat_timeout);
  }

  // On the heartbeat's thread, when ranks are lost: nothing can wake the thread that waits for them in the store, where
  // the backends' addresses come from too.
  void end_unless_formed() {
    const std::scoped_lock lock(message_mutex);
    if (is_formed || std::exchange(is_reported, true)) return;  // or this rank ends by itself
    const auto own_message = early_loss_message(heartbeat->lost(), heartbeat->hung_up());
    if (own_message) print_error(launch->env.layout.rank, *own_message);
    // Where rank 0 is lost each rank finds that alone, up to a beat later than another.
    if (!own_message) std::this_thread::sleep_for(std::max(kUntilReported, heartbeat_timeout / 4));
    _exit(static_cast<int>(ExitCode::kFailed));
  }

  // Before this rank ends by `cause`, so that the others do not take it for lost. Returns the message that it prints:
  // `own`, or one about the loss of rank 0, with which the store is lost.
  std::optional<std::string> leave_while_joining(const std::exception& cause, std::optional<std::string> own) {
    if (is_lost_connection(cause)) wait_for_lost_ranks(*heartbeat);
    {
      const std::scoped_lock lock(message_mutex);  // where the heartbeat has found a loss, it ends the process
      is_reported = true;
    }
    heartbeat->leave();
    if (!is_lost_connection(cause)) return own;
    if (const auto lost = heartbeat->lost(); !lost.empty()) return early_loss_message(lost, heartbeat->hung_up());
    const auto closed = heartbeat->closed();
    return closed.empty() ? own : early_loss_message(closed, true);
  }
};

ProcessGroup::ProcessGroup(Launch launch, const GroupOptions& options) : ProcessGroup(std::move(launch), options, {}) {}

ProcessGroup::ProcessGroup(Launch launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store)
    : RankGroup(launch.env.layout.rank, launch.env.layout.world_size),
      layout_(launch.env.layout),
      launcher_(launch.launcher),
      state_(std::make_unique<State>()) {
  state_->launch = &launch;
  state_->location = store_location(launch.env.master, options.init_method);
  try {
    join(launch, options, store);
  } catch (const std::exception& error) {
    give_up(error);
  }
}

// Once all have joined, the other ranks wait in the backend, or will: message_for() selects the rank that reports.
void ProcessGroup::give_up(const std::exception& error) {
  const bool others_are_lost = state_->heartbeat && !state_->heartbeat->lost().empty();
  const TrainError not_formed("cannot form the process group at " + state_->location + ": " + one_line(error));
  const std::exception& shown = is_lost_connection(error) && !others_are_lost ? not_formed : error;
  std::optional<std::string> message;
  if (state_->heartbeat && !state_->is_joining) {
    message = message_for(shown);
  } else {
    if (dynamic_cast<const PeerFailed*>(&error) == nullptr) message = one_line(shown);
    if (state_->heartbeat) message = state_->leave_while_joining(error, std::move(message));
  }
  end();
  if (message) throw TrainError(*message);
  throw PeerFailed();
}

ProcessGroup::~ProcessGroup() {
  if (!state_) return;
  const bool complete = !state_->heartbeat || state_->heartbeat->lost().empty();
  try {
    if (complete && !is_unwinding()) leave();
  } catch (const std::exception&) {
    // A destructor cannot throw; leave() does.
  }
  end();
}

void ProcessGroup::join(Launch& launch, const GroupOptions& options, const c10::intrusive_ptr<c10d::Store>& given) {
  // gloo and the store write to connections whose other end may just have died.
  if (world_size() > 1) ignore_unless_handled(SIGPIPE);
  // A limit on file sizes also limits the memory that ranks share. With the signal ignored exceeding it is an error,
  // and gloo's connections are used instead.
  if (world_size() > 1) ignore_unless_handled(SIGXFSZ);
  state_->is_gloo_alone = is_gloo_alone(options);
  JoinRequest request{.method = options.init_method,
                      .store = given,
                      .group_name = options.group_name,
                      .timeout = options.time_to_join(),
                      .backend = {},
                      .local_error = {}};
  if (options.heartbeat_timeout.count() > 0) request.answer_timeout = options.heartbeat_timeout + kBusyStore;
  const auto report = [&] { report_no_answer(launch.env, options.init_method); };
  std::optional<AbortWatchdog> join_watchdog(std::in_place, longest_join(request.timeout), report);
  if (world_size() > 1) join_watchdog->start();
  const JoinedStore joined = join_store(launch, request);
  state_->store = joined.store;
  state_->group_stores = c10::make_intrusive<c10d::PrefixStore>("default_pg", joined.store);
  {
    AbortWatchdog stopped(request.answer_timeout, report);  // while the heartbeat does not show it
    if (joined.served_by_rank_0 && !is_first()) stopped.start();
    claim_rank(*joined.store, launch, request);
    // First, so that a rank that is stopped while it looks for its device, or waits for others, is noticed.
    if (world_size() > 1) start_heartbeat(joined.own_address, options.heartbeat_timeout);
  }
  try {
    check_nccl(options);
    device_ = device_for(options, layout_);
    if (device_.is_cuda()) use_cuda(device_);
    state_->backends = backends_for(options, device_);
    backend_ = text_of(state_->backends);
  } catch (const std::exception& error) {
    request.local_error = one_line(error);  // it may concern this rank alone
  }
  request.backend = backend_;
  const milliseconds by_backend = has(state_->backends, "nccl") ? kNcclTimeout : kOtherTimeout;
  const milliseconds timeout = options.timeout.count() > 0 ? options.timeout : by_backend;
  request.timeout = std::min(request.timeout, timeout);
  state_->join_result = join_ranks(*joined.store, launch, request);
  state_->join_result.served_by_rank_0 = joined.served_by_rank_0;
  join_watchdog.reset();
  state_->request = {.timeout = timeout,
                     .connect_timeout = request.timeout,
                     .address = joined.own_address,
                     .options = options.pg_options};
  if (!device_.is_cpu()) state_->request.device = device_;
  auto& shared_memory = state_->request.options.gloo.shared_memory;
  if (!shared_memory) shared_memory = options.backend.empty() && device_.is_cpu();
  state_->is_joining = false;
  failpoint("connect");
  take(form_group(state_->backends, state_->next(rank(), world_size()), state_->connections, nullptr));
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->is_formed = true;
    state_->launch = nullptr;
  }
  if (device_.is_cpu() && shares_memory(*c10d()->getBackend(c10::kCPU))) backend_ += " over shared memory";
  // NCCL uses the store again when it first sees a device.
  state_->store->setTimeout(timeout);
}

// Rank 0's timeout holds for all ranks. With its own, a rank would take ranks of a longer one for lost, or send
// heartbeats where rank 0 does not listen.
void ProcessGroup::start_heartbeat(const std::string& own_address, std::chrono::milliseconds own_timeout) {
  constexpr const char *kTimeout = "heartbeat_timeout", *kServer = "heartbeat";
  failpoint("heartbeat");
  c10d::Store& store = *state_->store;
  if (is_first()) put(store, kTimeout, std::to_string(own_timeout.count()));
  const milliseconds heartbeat_timeout{std::stoll(get(store, kTimeout))};
  if (heartbeat_timeout.count() == 0) return;
  state_->abort_watchdog =
      std::make_unique<AbortWatchdog>(kAbortTimeout, [state = state_.get(), rank = rank(), size = world_size()] {
        const std::scoped_lock lock(state->message_mutex);
        if (!std::exchange(state->is_reported, true)) {
          const std::runtime_error lost("the connections between the ranks were lost");
          state->message = failure_message(state->broken_group(rank, size), state->error ? *state->error : lost);
        }
        if (state->message) print_error(rank, *state->message);
      });
  HeartbeatOptions heart{.timeout = heartbeat_timeout, .on_loss = [state = state_.get()] {
                           state->end_unless_formed();
                           state->abort_watchdog->start();  // first, because NCCL's abort may hang
                           state->connections->abort();
                         }};
  if (state_->is_gloo_alone) {
    heart.waiting = [state = state_.get(), heartbeat_timeout] {
      return state->is_formed ? state->connections->waiting() : heartbeat_timeout;
    };
  }
  state_->heartbeat_timeout = heartbeat_timeout;
  Endpoint server;
  if (is_first()) {
    heart.token = random_token();
  } else {
    std::istringstream words(get(store, kServer));
    words >> heart.token >> server.host >> server.port;
  }
  {
    const std::scoped_lock lock(state_->message_mutex);  // its thread reads state_->heartbeat
    auto started =
        is_first() ? Heartbeat::serve(own_address, world_size(), heart) : Heartbeat::join(server, rank(), heart);
    if (!started) throw TrainError("cannot start the heartbeat between the ranks: " + started.error().message);
    state_->heartbeat = std::move(*started);
  }
  if (!is_first()) return;
  const Endpoint& own = state_->heartbeat->endpoint();
  put(store, kServer, heart.token + " " + own.host + " " + std::to_string(own.port));
}

std::unique_ptr<Subgroup> ProcessGroup::new_group(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  const bool right = !ranks.empty() && ranks.front() >= 0 && ranks.back() < world_size() &&
                     std::ranges::adjacent_find(ranks) == ranks.end();
  if (!right)
    throw TrainError("a group of " + (ranks.empty() ? "no ranks" : list_of(ranks)) +
                     ": expected different ranks from 0 to " + std::to_string(world_size() - 1));
  return own_subgroup({std::move(ranks)});
}

std::unique_ptr<Subgroup> ProcessGroup::per_node() { return own_subgroup(nodes()); }

std::unique_ptr<Subgroup> ProcessGroup::across_nodes() {
  std::vector<std::vector<int>> across;
  for (const std::vector<int>& node : nodes()) {
    if (across.size() < node.size()) across.resize(node.size());
    for (std::size_t i = 0; i < node.size(); ++i) across[i].push_back(node[i]);
  }
  for (auto& ranks : across) std::ranges::sort(ranks);
  return own_subgroup(across);
}

std::vector<std::vector<int>> ProcessGroup::nodes() {
  return ranks_by_node(locations_of(*state_->store, all_ranks(world_size())));
}

// Every rank counts all subgroups, so that all agree on the names of later ones.
std::unique_ptr<Subgroup> ProcessGroup::own_subgroup(const std::vector<std::vector<int>>& partition) {
  std::unique_ptr<Subgroup> own;
  for (const std::vector<int>& ranks : partition) {
    const auto found = std::ranges::find(ranks, rank());
    const int index = static_cast<int>(found - ranks.begin());
    BackendRequest request = state_->next(index, static_cast<int>(ranks.size()));
    if (found == ranks.end()) continue;
    request.ranks.assign(ranks.begin(), ranks.end());
    request.split_color = color_of(ranks);
    own = std::make_unique<Subgroup>(
        form_group(state_->backends, std::move(request), state_->connections, c10d().get()), ranks, index);
  }
  if (!own) stay_out_of_group(state_->backends, *c10d());
  return own;
}

void ProcessGroup::leave() {
  failpoint("exit");
  leave_group();
  if (state_->heartbeat) state_->heartbeat->leave();
  state_.reset();
}

void ProcessGroup::end() {
  if (!state_) return;
  state_->connections->abort();
  if (state_->heartbeat) state_->heartbeat->stop();
  release();
  state_.reset();
}

std::optional<std::string> ProcessGroup::message_for(const std::exception& error) {
  if (!state_) return one_line(error);
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->error = &error;
  }
  if (state_->abort_watchdog) state_->abort_watchdog->start();  // first, because NCCL's abort may hang
  const milliseconds waited = state_->connections->waited();
  state_->connections->abort();
  {
    const std::scoped_lock lock(state_->message_mutex);
    // The abort watchdog has reported, and ends the process.
    if (std::exchange(state_->is_reported, true)) return std::nullopt;
  }
  if (state_->heartbeat && is_first() && is_lost_connection(error)) wait_for_lost_ranks(*state_->heartbeat);
  if (state_->heartbeat) state_->heartbeat->announce_abort();
  BrokenGroup broken = state_->broken_group(rank(), world_size());
  broken.waited = waited;
  const auto message = failure_message(broken, error);
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->message = message;
  }
  end();
  return message;
}

std::chrono::milliseconds GroupOptions::time_to_join() const {
  constexpr std::chrono::seconds kUsual{60}, kWithGpu{300};
  const milliseconds by_device = device_id && device_id->is_cuda() ? kWithGpu : kUsual;
  const milliseconds chosen = join_timeout.count() > 0 ? join_timeout : by_device;
  return timeout.count() > 0 ? std::min(chosen, timeout) : chosen;
}

ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options) {
  LaunchSettings settings;
  settings.timeout = options.time_to_join();
  return ProcessGroup(value_or_throw(resolve_launch(options.init_method, options.ranks, environment, settings)),
                      options);
}

ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options,
                                const c10::intrusive_ptr<c10d::Store>& store) {
  if (options.init_method.kind != InitMethod::Kind::kAny)
    throw TrainError("both a store and an init method are given: leave out one of them");
  GroupOptions with_store = options;
  with_store.init_method.kind = InitMethod::Kind::kStore;
  return ProcessGroup(value_or_throw(resolve_launch(with_store.init_method, options.ranks, environment)), with_store,
                      store);
}

std::string flight_record() { return c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false); }

}  // namespace torchbridge::train
