#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torchbridge/backend.h>
#include <torchbridge/errors.h>
#include <torchbridge/group_options.h>
#include <torchbridge/process_group.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/launch/launch.h"
#include "bridge/net/address.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/backends/cuda.h"
#include "trainer_template/runtime/backends/cuda_devices.h"
#include "trainer_template/runtime/backends/gloo_backend.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/base/ignored_signals.h"
#include "trainer_template/runtime/base/value_or_throw.h"
#include "trainer_template/runtime/process_group/failure_report.h"
#include "trainer_template/runtime/process_group/form_group.h"
#include "trainer_template/runtime/process_group/heartbeat.h"
#include "trainer_template/runtime/rendezvous/abort_watchdog.h"
#include "trainer_template/runtime/rendezvous/join_store.h"
#include "trainer_template/runtime/rendezvous/quiet_c10d.h"
#include "trainer_template/runtime/rendezvous/rank_locations.h"
#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// As torch.distributed: constants.py and its default for NCCL.
constexpr milliseconds kNcclTimeout = std::chrono::minutes(10),
                       kOtherTimeout = std::chrono::minutes(30);
// How much longer than its timeout a collective may be in the call that begins it, so that the
// backend's own error comes first.
constexpr milliseconds kAfterTimeout{1000};
// And ranks that wait for those whose GPUs are in such a collective: who is in it knows why.
constexpr milliseconds kAfterGpus{5000};
// Of message_for() after an abort that took most of that time.
constexpr milliseconds kToReport{2500};
// How much longer than for a heartbeat a rank waits for an answer of the store, which serves all
// ranks at once.
constexpr milliseconds kBusyStore{4000};
// Until the reporter of a loss has printed, which waits a second for the others: a launcher that
// ends all ranks when one has failed would end it too.
constexpr milliseconds kUntilReported{1500};
// Of the store, set by rank 0: milliseconds, and "TOKEN HOST PORT".
constexpr const char *kHeartbeatTimeout = "heartbeat_timeout", *kHeartbeat = "heartbeat";

bool has(const std::vector<DeviceBackend>& backends, std::string_view name) {
  return std::ranges::count(backends, name, &DeviceBackend::backend) > 0;
}

c10::Device device_for(const GroupOptions& options, const Layout& layout) {
  const std::optional<c10::Device>& requested = options.device_id;
  if (!requested || requested->is_cpu()) return c10::Device(c10::kCPU);
  if (!requested->is_cuda())
    throw TrainError(formatted("device_id {}: expected cpu, cuda or cuda:INDEX", requested->str()));
  const CudaDevices devices = cuda_devices();
  const int index = value_or_throw(requested->has_index() ? gpu_at(requested->index(), devices)
                                                          : gpu_of(layout, devices));
  if (options.check_gpu) value_or_throw(options.check_gpu(devices.gpus[index]));
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

// Before the device is looked up, whose error would not name the backend that needs a GPU.
void check_nccl(const GroupOptions& options) {
  if (!has(value_or_throw(parse_backends(options.backend, "cpu")), "nccl")) return;
  const CudaDevices devices = cuda_devices();
  if (!devices.gpus.empty()) return;
  throw TrainError(
      formatted("backend 'nccl' needs a GPU, but {}; use gloo on the CPU", text_of(devices)));
}

bool serves_cpu(const std::vector<DeviceBackend>& backends) {
  return std::ranges::count(backends, "cpu", &DeviceBackend::device) > 0;
}

// Of collectives.
milliseconds timeout_of(const GroupOptions& options, const std::vector<DeviceBackend>& backends) {
  if (options.timeout.count() > 0) return options.timeout;
  return has(backends, "nccl") ? kNcclTimeout : kOtherTimeout;
}

std::vector<DeviceBackend> backends_for(const GroupOptions& options, c10::Device device) {
  c10d::setDebugLevelFromEnvironment();
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  return backends_of(value_or_throw(parse_backends(options.backend, type)));
}

// NCCL takes two ranks for ranks of one host by NCCL_HOSTID, or by the host's name and its boot
// (getHostHash in NCCL's misc/utils.cc): several hosts may have one name.
NcclGpu nccl_gpu(c10::Device device) {
  if (!device.is_cuda()) return {};
  const auto exclusive_gpu = find_backend("nccl").exclusive_gpu;
  if (!exclusive_gpu) return {};
  const std::string gpu =
      exclusive_gpu(cuda_devices().gpus.at(static_cast<std::size_t>(device.index())));
  if (gpu.empty()) return {};
  if (const char* host_id = std::getenv("NCCL_HOSTID")) return {gpu + " on " + host_id, ""};
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return {gpu + " on " + host_name(), boot_id};
}

// libtorch's monitor of NCCL looks for this key at the root of the store (kStoreDumpKey in
// ProcessGroupNCCL.hpp), where an earlier attempt may have left it if an agent serves the store: it
// would write its flight recorder, and end the process eight minutes later.
void forget_dump_request(c10d::Store& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  c10d::Store& root = prefixed ? *prefixed->getUnderlyingNonPrefixStore() : store;
  if (root.check({"exception_dump"})) root.deleteKey("exception_dump");
}

bool is_gloo_alone(const GroupOptions& options) {
  const bool on_gpu = options.device_id && !options.device_id->is_cpu();
  const auto backends = parse_backends(options.backend, on_gpu ? "cuda" : "cpu");
  return backends &&
         std::ranges::all_of(*backends, [](const auto& one) { return one.backend == "gloo"; });
}

// For ncclCommSplit: the same on all ranks of a subgroup, and different for two subgroups but for
// hash collisions.
int color_of(const std::vector<int>& ranks) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (int rank : ranks) hash = (hash ^ static_cast<std::uint32_t>(rank)) * 16777619U;
  return static_cast<int>(hash & 0x7fffffffU);
}

// On rank 0: a killed rank's connections close one after the other, gloo's perhaps before the
// heartbeat's. Not found within the time, the ranks wait longer for each other.
void wait_for_lost_ranks(const Heartbeat& heartbeat) {
  constexpr milliseconds kTogether{100}, kPause{1};
  const auto deadline = std::chrono::steady_clock::now() + kTogether;
  const auto is_known = [&] {
    return !heartbeat.closed().empty() || !heartbeat.aborted_ranks().empty() ||
           !heartbeat.lost().empty();
  };
  while (!is_known() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kPause);
}

}  // namespace

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::Store> store;  // of the ranks' locations, errors and heartbeat
  JoinResult join_result;
  c10::intrusive_ptr<c10d::Store> group_stores;  // the parent of all groups' stores
  std::vector<DeviceBackend> backends;
  BackendRequest request;  // the fields that are the same for all groups
  int groups = 0;          // number of groups made: the name of the next one
  int rank = 0, world_size = 1;
  milliseconds heartbeat_timeout{};
  std::string heartbeat_server;         // as rank 0 sets it
  std::string secret;                   // of the ranks alone, not in the store
  std::atomic<bool> has_secret{false};  // then nothing changes it
  const Launch* launch = nullptr;       // until the group is formed
  std::string location;                 // of the store, for messages
  std::atomic<bool> is_joining{true};   // until all ranks have joined
  std::atomic<bool> is_formed{false};   // and their backends have connected
  bool is_gloo_alone = false;
  std::shared_ptr<Connections> connections = std::make_shared<Connections>();
  std::mutex message_mutex;
  const std::exception* error = nullptr;  // of message_for(), once that is called
  bool is_reported = false;               // a thread makes the message of this rank
  bool has_message = false;               // and has made it: nothing where another rank reports
  bool is_printed = false;                // by report() or report_and_exit()
  std::optional<std::string> message;
  std::condition_variable message_made;
  std::atomic<bool> has_own_error{false};  // see BrokenGroup
  std::atomic<c10d::ErrorType> backend_error{
      c10d::ErrorType::SUCCESS};  // that made this rank abort the group
  // Null with one rank. Its thread starts the two below, so end() and leave() stop it. Set under
  // message_mutex, because the watchdog's thread reads it.
  std::shared_ptr<Heartbeat> heartbeat;
  AbortWatchdog abort_watchdog{
      kAbortTimeout, [this] {
        report_and_exit(std::runtime_error("the connections between the ranks were lost"),
                        /*is_stuck=*/true);
      }};
  std::atomic<bool> is_aborting{false}, is_announced{false};
  std::jthread abort_thread;
  std::jthread error_thread;  // the last member: it uses all others

  BackendRequest next(int own_rank, int size) {
    BackendRequest own = request;
    own.rank = own_rank;
    own.size = size;
    own.store = group_stores;
    own.group_name = std::to_string(groups++);
    return own;
  }

  // Any thread.
  BrokenGroup broken_group() const { return broken_group(*store); }
  BrokenGroup broken_group(c10d::Store& own) const {
    BrokenGroup broken{.store = own,
                       .rank = rank,
                       .world_size = world_size,
                       .join_result = join_result,
                       .secret = has_secret ? secret : std::string(),
                       .waited = connections->waited(),
                       .collectives = connections->count(),
                       .in_subgroup = !connections->is_latest_of_all(),
                       .is_aborting = is_aborting,
                       .has_own_error = has_own_error,
                       .backend_error = backend_error,
                       .interfaces = connections->interfaces(),
                       .heartbeat_timeout = {}};
    if (!heartbeat) return broken;
    broken.heartbeat_timeout = heartbeat->limit();
    broken.lost = heartbeat->lost();
    broken.hung_up = heartbeat->hung_up();
    broken.aborted_ranks = heartbeat->aborted_ranks();
    broken.closed = heartbeat->closed();
    return broken;
  }

  // Whose connections of the heartbeat have closed, or that have announced an abort.
  std::size_t ranks_gone() const {
    return heartbeat ? heartbeat->closed().size() + heartbeat->aborted_ranks().size() : 0;
  }

  // Before an abort; that of gloo alone takes no time.
  void announce_failure(const std::exception* cause) {
    if (world_size > 1 && !is_gloo_alone && !is_announced.exchange(true))
      train::announce_failure(broken_group(), cause);
  }

  // So that the others abort too: NCCL's abort waits for those of the same node.
  void announce_abort(bool may_be_lost) {
    if (!heartbeat) return;
    if (may_be_lost && rank == 0) wait_for_lost_ranks(*heartbeat);
    heartbeat->announce_abort();
  }

  // Any thread, in a process that can do no more. `cause` is that of this rank where message_for()
  // has none; then the program may be stuck.
  [[noreturn]] void report_and_exit(const std::exception& cause, bool is_stuck = false) {
    auto own = own_store(broken_group());
    if (!own) own = store;
    std::unique_lock lock(message_mutex);
    if (std::exchange(is_reported, true)) {
      message_made.wait_for(lock, kToReport, [this] { return has_message; });
    } else {
      if (!error && is_own_error(broken_group(), cause)) has_own_error = true;
      if (is_formed) announce_abort(/*may_be_lost=*/false);
      BrokenGroup broken = broken_group(*own);
      broken.is_stuck = is_stuck && !error;
      message = failure_message(broken, error ? *error : cause);
      has_message = true;
    }
    if (message && !std::exchange(is_printed, true)) print_error(rank, *message);
    lock.unlock();
    if (!message) std::this_thread::sleep_for(kUntilReported);
    end_report(broken_group(*own));
    _exit(static_cast<int>(ExitCode::kFailed));
  }

  // Of an exception that nothing has caught. It is this rank's own unless something is known of
  // another, or it may be: collectives throw DistBackendError, stores of the program's another.
  [[noreturn]] void report_uncaught(const std::exception& uncaught) {
    abort_watchdog.start();  // first, because the backends may not answer
    if (heartbeat) wait_for_lost_ranks(*heartbeat);
    const BrokenGroup broken = broken_group();
    const bool is_of_others = !broken.lost.empty() || !broken.closed.empty() ||
                              !broken.aborted_ranks.empty() ||
                              dynamic_cast<const c10::DistBackendError*>(&uncaught) != nullptr ||
                              connections->error() != c10d::ErrorType::SUCCESS;
    {
      const std::scoped_lock lock(message_mutex);
      if (!error && !is_of_others) has_own_error = true;
    }
    report_and_exit(uncaught);
  }

  // Of subgroups that the program has left, once all ranks have come to the end.
  void end_kept() {
    while (const auto limit = connections->kept_limit()) {
      AbortWatchdog watchdog(*limit, [this, limit] {
        report_and_exit(std::runtime_error(formatted(
            "the connections of an earlier subgroup did not close within {}", seconds(*limit))));
      });
      watchdog.start();
      connections->end_kept();
    }
  }

  // On the heartbeat's thread, which goes on, because the other ranks would take one without
  // heartbeats for stopped; or on that of the errors, of which the others know nothing.
  void start_abort(bool is_known_to_all) {
    if (is_aborting.exchange(true)) return;
    abort_watchdog.start();  // first, because NCCL's abort may hang
    abort_thread = std::jthread([this, is_known_to_all] {
      announce_failure(nullptr);
      if (!is_known_to_all) announce_abort(/*may_be_lost=*/true);
      connections->abort();
    });
  }

  // Aborts on an error of the backends, which are asked for it all the time: this rank may wait for
  // the GPU, where nothing but an abort wakes it. Not on the heartbeat's thread, for the answer may
  // take long: with TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL's watchdog first compares the ranks through
  // the store.
  void abort_on_backend_error(const std::stop_token& stop, milliseconds period) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!never.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
      c10d::ErrorType found = connections->error();
      if (!is_formed) continue;
      // libtorch's watchdog sees a collective once the call that begins it has returned.
      if (!is_gloo_alone && connections->blocked() > request.timeout + kAfterTimeout)
        found = c10d::ErrorType::TIMEOUT;
      if (found == c10d::ErrorType::SUCCESS) continue;
      backend_error = found;
      return start_abort(/*is_known_to_all=*/false);
    }
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

  // Around NCCL's forming of a communicator: behind a firewall it tries for more than an hour to
  // reach a rank, and nothing wakes the thread that waits for it.
  ConnectLimit connect_limit(const std::string& backend) {
    return {request.connect_timeout, [this, backend](const std::set<std::string>& interfaces) {
              end_unconnected(backend, interfaces);
            }};
  }
  void end_unconnected(const std::string& backend, const std::set<std::string>& interfaces) {
    {
      const std::scoped_lock lock(message_mutex);
      if (std::exchange(is_reported, true)) return;
    }
    announce_abort(/*may_be_lost=*/false);
    try {
      auto own = own_store(broken_group());
      if (!own) own = store;
      BrokenGroup broken = broken_group(*own);
      broken.interfaces.insert(interfaces.begin(), interfaces.end());
      const TrainError late(formatted(
          "the backend {} did not connect the ranks within {}: a firewall, an interface that other "
          "nodes do not reach (NCCL_SOCKET_IFNAME), or a rank that did not come",
          backend, seconds(request.connect_timeout)));
      broken.has_own_error = true;  // the same text on all ranks: one of them gets it back
      const auto text = failure_message(broken, late);
      if (text) print_error(rank, *text + interfaces_note(broken));
      if (!text) std::this_thread::sleep_for(kUntilReported);
      end_report(broken);
    } catch (const std::exception&) {
      // The store is lost with rank 0, which reports by itself.
    }
  }

  // The message of this rank about ranks that were lost before the group was formed; nothing where
  // another rank reports it.
  std::optional<std::string> early_loss_message(const std::vector<int>& lost, bool hung_up) const {
    if (launch->env.layout.rank != lowest_left(lost)) return std::nullopt;
    const auto aborted = heartbeat->aborted_ranks();  // they report their own errors
    const auto has_aborted = [&](int lost_rank) {
      return std::ranges::count(aborted, lost_rank) > 0;
    };
    if (hung_up && std::ranges::all_of(lost, has_aborted)) return std::nullopt;
    const std::string who =
        is_joining ? with_nodes(lost, *launch, {}) : hosts_without_waiting(lost);
    return hung_up ? lost_connection_error(who) : no_heartbeat_error(who, heartbeat->limit());
  }

  // On the heartbeat's thread, when ranks are lost: nothing can wake the thread that waits for them
  // in the store, where the backends' addresses come from too.
  void end_unless_formed() {
    if (is_formed)
      return;  // without the mutex, which the abort watchdog's thread holds while it ends this one
    const std::scoped_lock lock(message_mutex);
    if (is_formed || std::exchange(is_reported, true)) return;  // or this rank ends by itself
    const auto own_message = early_loss_message(heartbeat->lost(), heartbeat->hung_up());
    if (own_message) print_error(launch->env.layout.rank, *own_message);
    // Where rank 0 is lost each rank finds that alone, up to a beat later than another.
    if (!own_message) std::this_thread::sleep_for(std::max(kUntilReported, heartbeat->limit() / 4));
    _exit(static_cast<int>(ExitCode::kFailed));
  }

  // Before this rank ends by `cause`, so that the others do not take it for lost. Returns the
  // message that it prints: `own`, or one about the loss of rank 0, with which the store is lost.
  std::optional<std::string> leave_while_joining(const std::exception& cause,
                                                 std::optional<std::string> own) {
    if (is_lost_connection(cause)) wait_for_lost_ranks(*heartbeat);
    {
      // Where the heartbeat has found a loss, it ends the process.
      const std::scoped_lock lock(message_mutex);
      is_reported = true;
    }
    heartbeat->leave();
    if (!is_lost_connection(cause)) return own;
    if (const auto lost = heartbeat->lost(); !lost.empty())
      return early_loss_message(lost, heartbeat->hung_up());
    const auto closed = heartbeat->closed();
    return closed.empty() ? own : early_loss_message(closed, true);
  }
};

ProcessGroup::ProcessGroup(Launch launch, const GroupOptions& options)
    : ProcessGroup(std::move(launch), options, {}) {}

ProcessGroup::ProcessGroup(Launch launch, const GroupOptions& options,
                           const c10::intrusive_ptr<c10d::Store>& store)
    : RankGroup(launch.env.layout.rank, launch.env.layout.world_size),
      layout_(launch.env.layout),
      are_nodes_known_(launch.is_local_size_known &&
                       (layout_.node_count > 1 || layout_.local_world_size == layout_.world_size)),
      started_(how_started(launch)),
      state_(std::make_unique<State>()) {
  state_->launch = &launch;
  state_->rank = rank();
  state_->world_size = world_size();
  state_->connections->report_and_exit = [state = state_.get()](const std::exception& error) {
    state->report_and_exit(error);
  };
  state_->location = store_location(launch.env.master, options.init_method);
  try {
    join(launch, options, store);
  } catch (const std::exception& error) {
    give_up(error);
  }
}

// Once all have joined, the other ranks wait in the backend, or will: message_for() selects the
// rank that reports.
void ProcessGroup::give_up(const std::exception& error) {
  const bool others_are_lost = state_->heartbeat && !state_->heartbeat->lost().empty();
  const TrainError not_formed(
      formatted("cannot form the process group at {}: {}", state_->location, one_line(error)));
  const std::exception& shown = is_lost_connection(error) && !others_are_lost ? not_formed : error;
  std::optional<std::string> message;
  if (!state_->is_joining) {
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
    if (complete && !state_->error && !is_unwinding()) leave();
  } catch (const std::exception&) {
    // A destructor cannot throw; leave() does.
  }
  end();
}

void ProcessGroup::join(Launch& launch, const GroupOptions& options,
                        const c10::intrusive_ptr<c10d::Store>& given) {
  // gloo and the store write to connections whose other end may just have died.
  if (world_size() > 1) ignore_unless_handled(SIGPIPE);
  // A limit on file sizes also limits the memory that ranks share. With the signal ignored
  // exceeding it is an error, and gloo's connections are used instead.
  if (world_size() > 1) ignore_unless_handled(SIGXFSZ);
  state_->is_gloo_alone = is_gloo_alone(options);
  // A rank that fails takes the store along: c10d's client warns of it with a stack trace.
  const QuietC10d quiet(QuietC10d::kError);
  join_all(launch, options, given);
  connect();
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->is_formed = true;
    state_->launch = nullptr;
  }
  meet_by_heartbeat();
  // NCCL uses the store again when it first sees a device.
  state_->store->setTimeout(state_->request.timeout);
}

// At the store, with the backends that this rank can use.
void ProcessGroup::join_all(Launch& launch, const GroupOptions& options,
                            const c10::intrusive_ptr<c10d::Store>& given) {
  JoinRequest request{.method = options.init_method,
                      .store = given,
                      .group_name = options.group_name,
                      .timeout = options.time_to_join(),
                      .backend = {},
                      .nccl_gpu = {},
                      .local_error = {}};
  if (options.heartbeat_timeout.count() > 0)
    request.answer_timeout = options.heartbeat_timeout + kBusyStore;
  const auto report = [&] { report_no_answer(launch.env, options.init_method); };
  AbortWatchdog join_watchdog(longest_join(request.timeout), report);
  if (world_size() > 1) join_watchdog.start();
  const JoinedStore joined = join_store(launch, request);
  state_->store = joined.store;
  state_->group_stores = c10::make_intrusive<c10d::PrefixStore>("default_pg", joined.store);
  {
    AbortWatchdog stopped(request.answer_timeout, report);  // while the heartbeat does not show it
    if (joined.served_by_rank_0 && !is_first()) stopped.start();
    claim_rank(*joined.store, launch, request);
    // First, so that a rank that is stopped while it looks for its device, or waits for others, is
    // noticed.
    if (world_size() > 1) start_heartbeat(joined.own_address, options);
  }
  const auto& store = joined.served_by_rank_0;
  try {
    const bool several_nodes = layout_.node_count > 1 || (store && !is_own_address(store->host));
    choose_backends(options, several_nodes);
    if (has(state_->backends, "nccl")) request.nccl_gpu = nccl_gpu(device_);
  } catch (const std::exception& error) {
    request.local_error = one_line(error);  // it may concern this rank alone
  }
  const milliseconds timeout = timeout_of(options, state_->backends);
  request.backend = backend_;
  request.timeout = std::min(request.timeout, timeout);
  state_->request = {.timeout = timeout,
                     .connect_timeout = request.timeout,
                     .address = joined.own_address,
                     .options = options.pg_options,
                     .is_watched = world_size() > 1 && state_->heartbeat_timeout.count() > 0};
  if (!device_.is_cpu()) state_->request.device = device_;
  auto& shared_memory = state_->request.options.gloo.shared_memory;
  if (!shared_memory) shared_memory = options.backend.empty() && device_.is_cpu();
  if (is_first() && !store) forget_dump_request(*joined.store);
  state_->join_result = join_ranks(*joined.store, launch, request);
  state_->join_result.served_by_rank_0 = store;
}

void ProcessGroup::choose_backends(const GroupOptions& options, bool several_nodes) {
  check_nccl(options);
  device_ = device_for(options, layout_);
  if (device_.is_cuda()) use_cuda(device_);
  state_->backends = backends_for(options, device_);
  if (has(state_->backends, "gloo")) check_gloo_interfaces(options.pg_options.gloo, several_nodes);
  backend_ = text_of(state_->backends);
}

void ProcessGroup::connect() {
  state_->is_joining = false;
  failpoint("connect");
  FormedGroup formed = form_group(state_->backends, state_->next(rank(), world_size()),
                                  state_->connections, nullptr);
  connect_eagerly(formed, state_->connect_limit(backend_));
  take(std::move(formed));
  if (device_.is_cpu() && serves_cpu(state_->backends) &&
      shares_memory(*c10d()->getBackend(c10::kCPU)))
    backend_ += " over shared memory";
}

void ProcessGroup::meet_by_heartbeat() {
  if (!state_->heartbeat) return;
  // Over NCCL alone, and bound to no device, the group is connected by the program's first
  // collective, on the device that this has: then before the first report.
  if (serves_cpu(state_->backends) || !device_.is_cpu()) check_heartbeat();
  if (!is_first() && !state_->heartbeat->wait_until_accepted())
    throw TrainError(
        "the heartbeat of rank 0 has not accepted this rank's connection: another program has "
        "connected in its place");
}

// Rank 0's timeout holds for all ranks. With its own, a rank would take ranks of a longer one for
// lost.
void ProcessGroup::start_heartbeat(const std::string& own_address, const GroupOptions& options) {
  failpoint("heartbeat");
  c10d::Store& store = *state_->store;
  if (is_first()) put(store, kHeartbeatTimeout, std::to_string(options.heartbeat_timeout.count()));
  milliseconds heartbeat_timeout = options.heartbeat_timeout;
  if (!is_first()) {
    const std::string given = get(store, kHeartbeatTimeout);
    const auto timeout = parse_integer(given, 0, INT32_MAX);
    if (!timeout) throw changed_key(kHeartbeatTimeout, given, "a number of milliseconds");
    heartbeat_timeout = milliseconds(*timeout);
  }
  HeartbeatOptions heart{.timeout = heartbeat_timeout,
                         .is_stopping = options.is_stopping,
                         .on_loss = [state = state_.get()] {
                           state->end_unless_formed();
                           state->start_abort(/*is_known_to_all=*/true);
                         }};
  if (state_->is_gloo_alone) {
    const milliseconds limit =
        heartbeat_timeout.count() > 0 ? heartbeat_timeout : heart.stop_timeout;
    heart.waiting = [state = state_.get(), limit] {
      return state->is_formed ? state->connections->waiting() : limit;
    };
    // On the heartbeat's thread, for that of gloo takes no time. A rank that computes while a
    // collective is in progress goes on.
    heart.on_abort = [state = state_.get()] {
      if (state->is_formed) state->connections->abort();
    };
  }
  state_->heartbeat_timeout = heartbeat_timeout;
  Endpoint server;
  if (is_first()) {
    heart.token = random_token();
  } else {
    const std::string text = get(store, kHeartbeat);
    std::istringstream words(text);
    std::string port;
    words >> heart.token >> server.host >> port;
    const auto number = parse_integer(port, 1, UINT16_MAX);
    if (!number || !is_numeric(server.host))
      throw changed_key(kHeartbeat, text, "a token, an address and a port");
    server.port = static_cast<int>(*number);
  }
  {
    const std::scoped_lock lock(state_->message_mutex);  // its thread reads state_->heartbeat
    auto started = is_first() ? Heartbeat::serve(own_address, world_size(), heart)
                              : Heartbeat::join(server, rank(), heart);
    if (!started)
      throw TrainError("cannot start the heartbeat between the ranks: " + started.error().message);
    state_->heartbeat = std::move(*started);
  }
  if (heartbeat_timeout.count() > 0) {
    const milliseconds period = std::max(heartbeat_timeout / 8, milliseconds(1));
    state_->error_thread =
        std::jthread([state = state_.get(), period](const std::stop_token& stop) {
          state->abort_on_backend_error(stop, period);
        });
  }
  const Endpoint& own = state_->heartbeat->endpoint();
  state_->heartbeat_server = heart.token + " " + own.host + " " + std::to_string(own.port);
  if (is_first()) put(store, kHeartbeat, state_->heartbeat_server);
}

// A rank that a changed store has led elsewhere would report to a stranger, who could connect to
// rank 0 in its place. The collectives do not use the store.
void ProcessGroup::check_heartbeat() {
  const std::string timeout = std::to_string(state_->heartbeat_timeout.count()) + " ",
                    server = state_->heartbeat_server + " ";
  const std::string of_rank_0 = broadcast(timeout + server + (is_first() ? random_token() : ""));
  state_->secret = of_rank_0.substr(of_rank_0.rfind(' ') + 1);
  state_->has_secret = true;
  if (!of_rank_0.starts_with(timeout)) throw changed_key(kHeartbeatTimeout);
  if (!of_rank_0.starts_with(timeout + server)) throw changed_key(kHeartbeat);
}

std::unique_ptr<Subgroup> ProcessGroup::new_group(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  const bool right = !ranks.empty() && ranks.front() >= 0 && ranks.back() < world_size() &&
                     std::ranges::adjacent_find(ranks) == ranks.end();
  if (!right)
    throw TrainError(formatted("a group of {}: expected different ranks from 0 to {}",
                               ranks.empty() ? "no ranks" : list_of(ranks), world_size() - 1));
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

// Not from the store, whose keys anybody may have changed since the ranks joined.
std::vector<std::vector<int>> ProcessGroup::nodes() {
  std::vector<RankLocation> locations;
  for (const std::string& text : all_gather(own_location(layout_)))
    locations.push_back(location_of(static_cast<int>(locations.size()), text).value());
  return ranks_by_node(locations);
}

// Every rank counts all subgroups, so that all agree on the names of later ones.
std::unique_ptr<Subgroup> ProcessGroup::own_subgroup(
    const std::vector<std::vector<int>>& partition) {
  // Not the first call of a program over NCCL alone: the barrier would guess a GPU by the rank
  // where the group is bound to none. All ranks know the two numbers.
  const bool is_used = state_->connections->count() > 0 || state_->groups > 1;
  if (is_used || small().device().is_cpu()) meet_all(state_->request.timeout);
  state_->end_kept();
  const QuietC10d quiet(QuietC10d::kError);  // as in join()
  std::unique_ptr<Subgroup> own;
  for (const std::vector<int>& ranks : partition) {
    const auto found = std::ranges::find(ranks, rank());
    const int index = static_cast<int>(found - ranks.begin());
    BackendRequest request = state_->next(index, static_cast<int>(ranks.size()));
    if (found == ranks.end()) continue;
    request.ranks.assign(ranks.begin(), ranks.end());
    request.split_color = color_of(ranks);
    FormedGroup formed =
        form_group(state_->backends, std::move(request), state_->connections, c10d().get());
    connect_eagerly(formed, state_->connect_limit(backend_));
    formed.number = state_->groups;
    own = std::make_unique<Subgroup>(std::move(formed), ranks, index);
  }
  if (!own) stay_out_of_group(state_->backends, *c10d(), state_->connect_limit(backend_));
  return own;
}

std::shared_ptr<Heartbeat> ProcessGroup::compared_link() {
  if (state_->heartbeat && !state_->has_secret) check_heartbeat();
  return state_->heartbeat;
}

bool ProcessGroup::all_meet(const std::string& place, milliseconds timeout) try {
  if (world_size() == 1) return true;
  const std::string name = formatted("meet/{}/{}", place, state_->connections->count());
  c10d::Store& store = *state_->store;
  put(store, key(name.c_str(), rank()), "");
  const bool is_complete =
      missing_after(store, name.c_str(), all_ranks(world_size()), timeout).empty();
  // The first that knows it decides: a rank may come just after another has given up.
  return store.compareSet(name, std::string(), is_complete ? "yes" : "no") == "yes";
} catch (const std::exception&) {
  return false;  // the store is lost
}

// And their GPUs. The hosts come within the limit, where they can meet without these.
void ProcessGroup::meet_all(milliseconds limit) {
  if (!is_on_gpu()) return meet(Meeting::kOfAll, limit);
  const milliseconds timeout = state_->request.timeout;
  if (!small().device().is_cpu()) return meet(Meeting::kOfAll, timeout);
  const std::size_t gone_before = state_->ranks_gone();
  meet(Meeting::kOfAll, limit);
  failpoint("gpu");
  wait_for_gpu(timeout + kAfterTimeout, gone_before);
  meet(Meeting::kAgain, timeout + kAfterGpus);
}

// For what the program has queued, which no other limit counts. Of the ranks that have met since,
// those are gone that were not before: a connection of the heartbeat alone may be lost for long.
void ProcessGroup::wait_for_gpu(milliseconds limit, std::size_t gone_before) {
  if (device_.is_cpu()) return;
  constexpr milliseconds kPause{1};
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream stream = guard.getStream(device_);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!guard.queryStream(stream)) {
    throw_if_aborted();
    // No backend sees that the GPU waits for them, and no thread where no heartbeat is.
    if (state_->ranks_gone() > gone_before) C10_THROW_ERROR(DistBackendError, kAbortedCollective);
    if (std::chrono::steady_clock::now() >= deadline)
      throw TrainError(formatted("the GPU has not done within {} what was queued before the end",
                                 seconds(limit)));
    std::this_thread::sleep_for(kPause);
  }
  throw_if_aborted();
}

void ProcessGroup::leave() {
  failpoint("exit");
  meet_all(kLeaveTimeout);
  state_->end_kept();
  shut_down();
  state_->connections->keep_no_more();
  if (state_->heartbeat) state_->heartbeat->leave();
  state_.reset();
}

void ProcessGroup::end() {
  if (!state_) return;
  state_->abort_watchdog.start();
  state_->connections->abort();
  if (state_->has_message) end_report(state_->broken_group());
  if (state_->heartbeat) state_->heartbeat->stop();
  state_->connections->keep_no_more();
  release();
  state_.reset();
}

bool ProcessGroup::report(const std::exception& error) {
  const auto message = message_for(error);
  std::unique_lock<std::mutex> lock;
  if (state_) lock = std::unique_lock(state_->message_mutex);
  // Unless the abort watchdog prints it, and ends the process.
  if (message && !(state_ && std::exchange(state_->is_printed, true)))
    print_error(rank(), *message);
  return message.has_value();
}

std::optional<std::string> ProcessGroup::message_for(const std::exception& error) {
  if (!state_) return one_line(error);
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->error = &error;
  }
  state_->abort_watchdog.start();  // first, because NCCL's abort may hang
  if (const auto found = state_->connections->error(); found != c10d::ErrorType::SUCCESS)
    state_->backend_error = found;
  state_->has_own_error = is_own_error(state_->broken_group(), error);
  state_->announce_failure(&error);
  state_->announce_abort(is_lost_connection(error));
  state_->connections->abort();
  {
    const std::scoped_lock lock(state_->message_mutex);
    // The abort watchdog has reported, and ends the process.
    if (std::exchange(state_->is_reported, true)) return std::nullopt;
  }
  auto message = failure_message(state_->broken_group(), error);
  {
    const std::scoped_lock lock(state_->message_mutex);
    state_->message = message;
    state_->has_message = true;
  }
  state_->message_made.notify_all();
  return message;
}

void ProcessGroup::report_and_exit(const std::exception& error) {
  if (state_) state_->report_uncaught(error);
  print_error(rank(), one_line(error));
  _exit(static_cast<int>(ExitCode::kFailed));
}

std::chrono::milliseconds GroupOptions::time_to_join() const {
  constexpr std::chrono::seconds kUsual{60}, kWithGpu{300};
  const milliseconds by_device = device_id && device_id->is_cuda() ? kWithGpu : kUsual;
  const milliseconds chosen = join_timeout.count() > 0 ? join_timeout : by_device;
  return timeout.count() > 0 ? std::min(chosen, timeout) : chosen;
}

ProcessGroup init_process_group(const EnvMap& environment) {
  return init_process_group(environment, GroupOptions());
}

ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options) {
  LaunchSettings settings;
  settings.timeout = options.time_to_join();
  return ProcessGroup(value_or_throw(resolve_launch(options.init_method, options.ranks,
                                                    LaunchOrigin(environment), settings)),
                      options);
}

ProcessGroup init_process_group(const EnvMap& environment, const GroupOptions& options,
                                const c10::intrusive_ptr<c10d::Store>& store) {
  if (options.init_method.kind != InitMethod::Kind::kAny)
    throw TrainError("both a store and an init method are given: leave out one of them");
  GroupOptions with_store = options;
  with_store.init_method.kind = InitMethod::Kind::kStore;
  return ProcessGroup(value_or_throw(resolve_launch(with_store.init_method, options.ranks,
                                                    LaunchOrigin(environment))),
                      with_store, store);
}

std::string flight_record() {
  std::string record = c10d::dump_fr_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
  // A record is an object that is never empty: it has a version.
  for (const auto& [name, own] : own_flight_records())
    record.insert(record.rfind('}'), ",\"" + name + "\":" + own);
  return record;
}

}  // namespace torchbridge::train
