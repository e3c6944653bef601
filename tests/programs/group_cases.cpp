// What a program does with init_process_group, one case a run: group_cases CASE [ARGUMENT].
// group_test.cpp starts it.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torchbridge/backend.h>
#include <torchbridge/errors.h>
#include <torchbridge/group_options.h>
#include <torchbridge/launch.h>
#include <torchbridge/process_group.h>

#include "tests/support/hanging_backend.h"
#include "trainer_template/runtime/backends/gloo_backend.h"

namespace {

using namespace torchbridge;
using namespace torchbridge::train;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

EnvMap environment() { return EnvMap::from(environ); }
int variable(const char* name) { return std::stoi(std::string(*environment().get(name))); }

void expect(bool fact, const std::string& what) {
  if (!fact) throw TrainError("expected " + what);
}

// The ranks add up 1, 2, 3 ...
void expect_sum(RankGroup& group) {
  const at::Tensor number = at::full({1}, group.rank() + 1.0);
  group.sum(number);
  expect(number.item<double>() == group.world_size() * (group.world_size() + 1) / 2.0,
         "the sum over " + std::to_string(group.world_size()) + " ranks");
}

// A file that another process makes.
void wait_for(const std::string& file) {
  while (access(file.c_str(), F_OK) != 0) usleep(1'000);
}

// As run_job() ends a rank: with the line of the one that reports.
[[noreturn]] void end_by(ProcessGroup& group, const std::exception& error) {
  if (const auto message = group.message_for(error)) throw TrainError(*message);
  throw PeerFailed();
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

// --- stores

StorePtr tcp_store() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(variable("MASTER_PORT"));
  options.isServer = variable("RANK") == 0;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

void given_store(const std::string& kind_and_path) {
  const auto colon = kind_and_path.find(':');
  const std::string kind = kind_and_path.substr(0, colon), path = kind_and_path.substr(colon + 1);
  StorePtr store =
      kind == "tcp" ? tcp_store()
                    : StorePtr(c10::make_intrusive<c10d::FileStore>(path, variable("WORLD_SIZE")));
  if (kind == "prefix") store = c10::make_intrusive<c10d::PrefixStore>("mine", store);
  // Two groups at one store.
  for (const char* name : {"first", "second"}) {
    ProcessGroup group = init_process_group(environment(), {.group_name = name}, store);
    expect_sum(group);
  }
}

// Ranks as threads, each with a group of its own.
void hash_store(const std::string&) {
  constexpr int kRanks = 3;
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroup group = init_process_group(EnvMap(), {.ranks = {rank, kRanks}}, store);
      expect_sum(group);
      ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(right == kRanks, "all threads to have the sum");
}

void store_and_method(const std::string&) {
  init_process_group(environment(), {.init_method = *parse_init_method("env://")},
                     c10::make_intrusive<c10d::HashStore>());
}

void argument_against_variable(const std::string&) {
  init_process_group(environment(),
                     {.init_method = *parse_init_method("env://"), .ranks = {.world_size = 7}});
}

// --- the end

void ends_with_its_scope(const std::string&) {
  for (int i = 0; i < 2; ++i) {
    ProcessGroup group = init_process_group(environment(), {.group_name = std::to_string(i)});
    expect_sum(group);
    const auto part = group.per_node();
    expect_sum(*part);
  }
}

// Connections to this port in this network namespace, counted by the ports at their other ends.
std::size_t connections_to(int port) {
  std::ifstream file("/proc/net/tcp");
  std::set<std::string> ends;
  std::string number, local, remote, rest;
  for (std::getline(file, rest); file >> number >> local >> remote; std::getline(file, rest)) {
    if (std::stoi(remote.substr(remote.find(':') + 1), nullptr, 16) == port) ends.insert(local);
  }
  return ends.size();
}

// Returns after two attempts to reach the store, or after five seconds, in which a rank that tries
// only once fails.
void wait_for_clients(std::size_t before) {
  constexpr std::size_t kTwoTries = 4;  // a probe and a client each
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (connections_to(variable("MASTER_PORT")) < before + kTwoTries &&
         std::chrono::steady_clock::now() < deadline)
    usleep(1'000);
}

// Ends when ranks of the next attempt have connected.
void ends_when_the_next_attempt_connects(const std::string& formed) {
  ProcessGroup group = init_process_group(environment());
  expect_sum(group);
  const std::size_t before = connections_to(variable("MASTER_PORT"));
  if (group.rank() == 0) std::ofstream(formed) << "formed";
  wait_for_clients(before);
}

// Rank 1 joins the next group while the store of the first one still answers.
void before_the_store_is_closed(const std::string& flag) {
  c10::intrusive_ptr<c10d::ProcessGroup> kept;  // and with it the store
  {
    ProcessGroup group = init_process_group(environment());
    expect_sum(group);
    if (group.rank() == 0) kept = group.c10d();
  }
  if (variable("RANK") == 1) std::ofstream(flag) << "here";
  if (kept) {
    wait_for(flag);
    wait_for_clients(connections_to(variable("MASTER_PORT")));
    kept.reset();
  }
  ProcessGroup group = init_process_group(environment());
  expect_sum(group);
}

// Rank 1 fails inside the scope while the others wait for it.
void an_exception(const std::string& backend) {
  ProcessGroup group = init_process_group(environment(), {.backend = backend});
  const auto part = group.new_group({0, 1, 2});
  expect_sum(group);
  if (group.rank() == 1) throw TrainError("the disk of rank 1 is full");
  expect_sum(group);
}

// Rank 1 reaches a collective after the others have timed out, after a second.
void a_late_rank(const std::string& timed_out) {
  ProcessGroup group = init_process_group(environment(), {.timeout = std::chrono::seconds(1)});
  try {
    expect_sum(group);
    if (group.rank() == 1) wait_for(timed_out);
    expect_sum(group);
  } catch (const std::exception& error) {
    std::ofstream(timed_out) << "timed out";
    end_by(group, error);
  }
}

// "sum late FILE": rank 1 comes to a sum, or forms a subgroup, after the others have timed out;
// "never": it does not before one of them has its line. These come seconds apart, so that one waits
// in gloo for rank 1 when the other times out, which waits for it too or for that one.
void late_for_others_apart(const std::string& how) {
  std::string call, rank_1, file;
  std::istringstream(how) >> call >> rank_1 >> file;
  const bool never = rank_1 == "never";
  ProcessGroup group =
      init_process_group(environment(), {.backend = "gloo", .timeout = std::chrono::seconds(8)});
  try {
    expect_sum(group);
    if (group.rank() == (call == "sum" ? 0 : 2)) sleep(2);
    if (group.rank() == 1) wait_for(file);
    if (group.rank() == 1 && never) _exit(2);
    call == "sum" ? expect_sum(group) : static_cast<void>(group.new_group({0, 1, 2}));
  } catch (const std::exception& error) {
    if (!never) std::ofstream(file) << "timed out";
    const auto message = group.message_for(error);
    if (!message) throw PeerFailed();
    std::ofstream(file) << "reported";
    throw TrainError(*message);
  }
}

// Rank 0 fails while the others, each with a sum in progress, compute for longer than an abort may
// take. Of four ranks one is no neighbour of rank 0 in gloo's ring.
void fails_while_others_compute(const std::string&) {
  ProcessGroup group = init_process_group(environment(), {.backend = "gloo"});
  try {
    expect_sum(group);
    if (group.rank() == 0) throw TrainError("the disk of rank 0 is full");
    std::vector<at::Tensor> numbers = {at::ones({1})};
    const auto sum = group.c10d()->allreduce(numbers);
    sleep(9);
    sum->wait();
  } catch (const std::exception& error) {
    end_by(group, error);
  }
}

class ThrowingBackend : public HangingBackend {
 public:
  using HangingBackend::HangingBackend;
  c10d::ErrorType getError() override {
    const c10d::ErrorType error = HangingBackend::getError();
    if (throws && error != c10d::ErrorType::SUCCESS) throw std::runtime_error("no device");
    return error;
  }
  bool throws = false;
};

// The backend shows its error, after a second, by getError() alone. It is a timeout, for rank 1
// does not take part: `how` is the file that a rank makes when it has timed out, after which rank 1
// continues, or rank 1 never continues. "network": all take part, and it is another error, which
// with "network of rank 0" no other rank's backend shows. "slow abort": that of rank 0 takes three
// seconds; "... after a kill": rank 1 is killed; "... of a rank that fails": it is rank 1's, which
// has an error of its own; "... without memory": so too, of libtorch; "... whose download times
// out": so too, of the program; "... of rank 2": it is that of a rank which takes part, and learns
// of the timeout by rank 0's abort, which is quick. "throws": so do getError() and the abort.
void only_the_backend_knows(const std::string& how) {
  HangingBackend* made_here = nullptr;
  const bool has_no_memory = how == "slow abort of a rank without memory";
  const bool times_out = how == "slow abort of a rank whose download times out";
  const bool rank_1_fails = how == "slow abort of a rank that fails" || has_no_memory || times_out;
  const bool throws = how == "throws";
  const bool all_take_part = how.starts_with("network") || rank_1_fails || throws;
  const int slow_rank = !how.starts_with("slow abort")  ? -1
                        : rank_1_fails                  ? 1
                        : how == "slow abort of rank 2" ? 2
                                                        : 0;
  register_backend(
      "hanging", {{"cpu"},
                  [&](const BackendRequest& request) -> MadeBackend {
                    auto cause =
                        all_take_part ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::TIMEOUT;
                    const bool sees_the_abort = how == "slow abort of rank 2" && request.rank == 2;
                    if (sees_the_abort || (how == "network of rank 0" && request.rank != 0))
                      cause = c10d::ErrorType::SUCCESS;
                    auto made = c10::make_intrusive<ThrowingBackend>(make_gloo(request).backend,
                                                                     request.timeout, cause);
                    made->throws = throws;
                    auto* const hanging = made_here = made.get();
                    const bool hangs = how == "abort hangs";
                    const bool is_slow = request.rank == slow_rank;
                    return {std::move(made), [hanging, hangs, is_slow, throws] {
                              while (hangs) pause();
                              if (is_slow) sleep(3);
                              hanging->abort();
                              if (throws) throw std::runtime_error("no device");
                            }};
                  },
                  {}});
  ProcessGroup group =
      init_process_group(environment(), {.backend = "cpu:hanging",
                                         .timeout = std::chrono::seconds(1),
                                         .heartbeat_timeout = std::chrono::seconds(1)});
  const at::Tensor number = at::full({1}, 1.0);
  try {
    group.sum(number);
    if (group.rank() == 1 && how == "slow abort after a kill") raise(SIGKILL);
    if (group.rank() == 1 && has_no_memory)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "rank 1 has no memory");
    if (group.rank() == 1 && times_out) throw std::runtime_error("the download timed out");
    if (group.rank() == 1 && rank_1_fails) throw TrainError("the disk of rank 1 is full");
    const bool takes_part = group.rank() != 1 || all_take_part;
    if (!takes_part) wait_for(how);
    while (true) {
      group.minimum(7);
      expect(!made_here->is_aborted(), "no result of a collective that was aborted");
    }
  } catch (const std::exception& error) {
    if (how.starts_with('/')) std::ofstream(how) << "timed out";
    end_by(group, error);
  }
}

// Rank 1 leaves once the others have timed out there.
void leaves_late(const std::string& timed_out) {
  register_backend("hanging", {{"cpu"},
                               [](const BackendRequest& request) -> MadeBackend {
                                 auto made = c10::make_intrusive<HangingBackend>(
                                     make_gloo(request).backend, request.timeout,
                                     c10d::ErrorType::TIMEOUT);
                                 auto* const hanging = made.get();
                                 return {std::move(made), [hanging] { hanging->abort(); }};
                               },
                               {}});
  ProcessGroup group =
      init_process_group(environment(), {.backend = "cpu:hanging",
                                         .timeout = std::chrono::seconds(1),
                                         .heartbeat_timeout = std::chrono::seconds(1)});
  try {
    if (group.rank() == 1) wait_for(timed_out);
    group.leave();
  } catch (const std::exception& error) {
    std::ofstream(timed_out) << "timed out";
    end_by(group, error);
  }
}

// Rank 1 does not leave, and no heartbeat aborts what the others wait for.
void does_not_leave(const std::string& others_have_ended) {
  register_backend("hanging", {{"cpu"},
                               [](const BackendRequest& request) -> MadeBackend {
                                 auto made = c10::make_intrusive<HangingBackend>(
                                     make_gloo(request).backend, request.timeout,
                                     c10d::ErrorType::TIMEOUT);
                                 auto* const hanging = made.get();
                                 return {std::move(made), [hanging] { hanging->abort(); }};
                               },
                               {}});
  ProcessGroup group = init_process_group(
      environment(), {.backend = "cpu:hanging", .heartbeat_timeout = std::chrono::seconds(0)});
  if (group.rank() == 1) {
    wait_for(others_have_ended);
    _exit(2);
  }
  try {
    group.leave();
  } catch (const std::exception& error) {
    const auto message = group.message_for(error);
    std::ofstream(others_have_ended) << "ended";
    if (message) throw TrainError(*message);
    throw PeerFailed();
  }
}

// --- subgroups

// As another user can, whom the store asks for no proof.
void delete_keys_of_join(const ProcessGroup& group) {
  const auto store = group.c10d()->getStore();
  const auto all = c10d::PrefixStore("", store).getUnderlyingNonPrefixStore();
  int deleted = 0;
  for (const std::string& key : all->listKeys()) {
    if (key.find("joined/") != std::string::npos) deleted += all->deleteKey(key) ? 1 : 0;
  }
  expect(deleted == group.world_size(), "a key of each rank");
}

void subgroups(const std::string&) {
  ProcessGroup group = init_process_group(environment());
  {
    const auto some = group.new_group({2, 0});
    expect((some != nullptr) == (group.rank() % 2 == 0 && group.rank() < 3),
           "a handle on the ranks of the subgroup alone");
    if (some) {
      expect(some->ranks() == std::vector<int>({0, 2}) && some->rank() == group.rank() / 2,
             "the subgroup's ranks in order");
      expect_sum(*some);
      expect(some->broadcast(std::string(some->rank() == 1 ? "from 2" : ""), 1) == "from 2",
             "the text of the subgroup's rank 1");
    }
    if (group.is_first()) delete_keys_of_join(group);
    group.barrier();
    const auto node = group.per_node(), across = group.across_nodes();
    expect_sum(*node);
    expect_sum(*across);
    std::printf("node %s across %s\n", list(node->ranks()).c_str(), list(across->ranks()).c_str());
    const auto gathered = group.all_gather(list(node->ranks()));
    expect(std::ssize(gathered) == group.world_size(), "one text a rank");
  }
  for (const std::vector<int>& wrong : {std::vector<int>{}, {0, 0}, {0, 4}, {-1}}) {
    try {
      group.new_group(wrong);
      throw std::logic_error("taken");
    } catch (const TrainError& error) {
      expect(std::string(error.what()).find("expected different ranks from 0 to 3") !=
                 std::string::npos,
             "the error of new_group");
    }
  }
  expect_sum(group);
}

// Twenty times; what each time left open would be as many files. `how` is "hangs" where the abort
// of a subgroup does.
void handles_an_exception(const std::string& how) {
  register_backend("mine", {{"cpu"},
                            [&](const BackendRequest& request) {
                              MadeBackend made = make_gloo(request);
                              if (request.ranks.empty() || how != "hangs") return made;
                              made.abort = [] {
                                while (true) pause();
                              };
                              return made;
                            },
                            {}});
  ProcessGroup group = init_process_group(environment(), {.backend = "cpu:mine"});
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  std::ptrdiff_t after_the_first = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      const auto all = group.new_group({0, 1, 2});
      expect_sum(*all);
      throw std::runtime_error("handled");
    } catch (const std::runtime_error&) {
      if (how == "hangs") break;
    }
    if (i == 0) after_the_first = open_files();
  }
  // gloo closes on a thread of its own.
  expect(how == "hangs" || open_files() < after_the_first + 10, "no files of handled exceptions");
  group.barrier();
  group.leave();
}

// --- backends

void registered_backend(const std::string&) {
  static int made = 0;
  register_backend("mine", {{"cpu"},
                            [](const BackendRequest& request) {
                              ++made;
                              return make_gloo(request);
                            },
                            {}});
  ProcessGroup group = init_process_group(environment(), {.backend = "cpu:mine"});
  expect(made == 1 && group.backend() == "mine", "the backend of the program to be made once");
  expect_sum(group);
}

void with_backend(const std::string& backend) {
  ProcessGroup group = init_process_group(environment(), {.backend = backend});
  expect_sum(group);
  expect_sum(*group.per_node());
  std::printf("%s\n", group.backend().c_str());
}

// Connects as NCCL's communicator does: each rank waits in it for all others, without limit. Rank 1
// fails.
void fails_in_the_backend(const std::string& how) {
  register_backend("stuck", {{"cpu"},
                             [&](const BackendRequest& request) -> MadeBackend {
                               if (request.rank == 1 && how == "killed") raise(SIGKILL);
                               TORCH_CHECK_WITH(DistBackendError, request.rank != 1,
                                                "no interface ib9");
                               while (true) pause();
                             },
                             {}});
  init_process_group(environment(), {.backend = "cpu:stuck"});
}

// The abort of its connections hangs, as ncclCommAbort may. `how` is "unwinds" where the scope of
// the group ends by an exception.
void abort_hangs(const std::string& how) {
  register_backend("stays", {{"cpu"},
                             [](const BackendRequest& request) {
                               MadeBackend made = make_gloo(request);
                               made.abort = [] {
                                 while (true) pause();
                               };
                               return made;
                             },
                             {}});
  ProcessGroup group = init_process_group(environment(), {.backend = "cpu:stays"});
  try {
    expect_sum(group);
    if (group.rank() == 1) throw TrainError("the disk of rank 1 is full");
    expect_sum(group);
  } catch (const std::exception& error) {
    if (how == "unwinds") throw;
    end_by(group, error);
  }
}

// Ranks 0 and 2 wait for each other, and have no connection to rank 1, which is killed.
void waits_for_another(const std::string&) {
  ProcessGroup group = init_process_group(environment(), {.backend = "gloo"});
  const auto one = group.new_group({0, 2}), other = group.new_group({0, 2});
  expect_sum(group);
  if (group.rank() == 1) raise(SIGKILL);
  try {
    (group.rank() == 0 ? one : other)->barrier();
  } catch (const std::exception& error) {
    end_by(group, error);
  }
}

// The others wait in the store for rank 1's address, on the connection that reports use too.
void killed_before_a_subgroup(const std::string&) {
  register_backend("mine", {{"cpu"}, make_gloo, {}});
  ProcessGroup group = init_process_group(environment(), {.backend = "cpu:mine"});
  expect_sum(group);
  if (group.rank() == 1) raise(SIGKILL);
  try {
    group.new_group({0, 1, 2});
  } catch (const std::exception& error) {
    end_by(group, error);
  }
}

// Of a store of the program's, which no group knows.
void throws_in_a_thread(const std::string&) {
  std::exit(run_job(
      LaunchOrigin(torchbridge::EnvMap::from(environ)), [] { return GroupOptions{}; },
      [](ProcessGroup& group) {
        if (group.rank() == 1)
          std::thread([] {
            C10_THROW_ERROR(DistStoreError, "the store of the cache is full");
          }).join();
        while (true) expect_sum(group);
        return ExitCode::kDone;
      }));
}

// Every rank can compute the values of any rank.
at::Tensor values_of(int rank, std::int64_t count, at::ScalarType type) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(1000 + rank);
  const auto random = [&] { return at::randn({count}, generator, at::kDouble); };
  const at::Tensor spread = random() * at::exp(3 * random());
  return (at::isIntegralType(type, /*includeBool=*/false) ? spread * 1000 : spread).to(type);
}

void expect_same_bits(const at::Tensor& one, const at::Tensor& other, const std::string& what) {
  const bool same = std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
  const std::string tensor =
      std::to_string(one.numel()) + " elements of " + c10::toString(one.scalar_type());
  expect(same, what + " to have gloo's bits: " + tensor);
}

// From one element to more than goes over shared memory; at every size the ranks' chunks begin
// elsewhere.
void shared_memory(const std::string&) {
  const StorePtr store = tcp_store();
  ProcessGroup gloo =
      init_process_group(environment(), {.backend = "gloo", .group_name = "gloo"}, store);
  ProcessGroup shared = init_process_group(environment(), {.group_name = "shared"}, store);
  expect(gloo.backend() == "gloo" && shared.backend() == "gloo over shared memory",
         "the second group alone to share memory, it is " + shared.backend());
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte}) {
    for (const std::int64_t count :
         {1, 2, 3, 7, 10, 16, 65, 1000, 1025, 4099, 20'000, 65'537, 131'072, 300'001}) {
      // How a tensor is cut into pieces depends on the number of its bytes: many elements of two
      // sizes are enough.
      if (count > 20'000 && type != at::kFloat && type != at::kBFloat16) continue;
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
        if (op != c10d::ReduceOp::SUM && (count % 2 == 0 || count > 65'537)) continue;
        std::vector<at::Tensor> one = {values_of(shared.rank(), count, type)},
                                other = {one[0].clone()};
        shared.c10d()->allreduce(one, {.reduceOp = op})->wait();
        gloo.c10d()->allreduce(other, {.reduceOp = op})->wait();
        expect_same_bits(one[0], other[0],
                         "operator " + std::to_string(op) + " over shared memory");
      }
      const at::Tensor sent = values_of(shared.rank(), count, type);
      shared.broadcast(sent, shared.world_size() - 1);
      expect_same_bits(sent, values_of(shared.world_size() - 1, count, type),
                       "a broadcast over shared memory");
    }
  }
  expect_sum(*shared.per_node());
}

void library(const std::string& backend) {
  for (const std::string& device : find_backend(backend).devices)
    std::printf("%s\n", device.c_str());
  std::printf("%s\n", flight_record().c_str());
}

void gloo_options(const std::string& interface) {
  GroupOptions options;
  options.pg_options.gloo = {.interfaces = {interface}, .threads = 3};
  ProcessGroup group = init_process_group(environment(), options);
  expect_sum(group);
}

// --- debugging

void different_collectives(const std::string&) {
  ProcessGroup group = init_process_group(environment());
  if (group.rank() == 0) {
    group.sum(at::full({4}, 1.0));
  } else {
    group.broadcast(at::full({4}, 1.0), 0);
  }
}

void record(const std::string&) {
  ProcessGroup group = init_process_group(environment());
  expect_sum(group);
  std::printf("%s\n", flight_record().c_str());
}

// --- the store's server

// The largest number of connections that may wait at the listener of this port.
int backlog_of(int port) {
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    tcp_info info{};
    socklen_t info_size = sizeof info;
    const bool found = getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                       ntohs(address.sin_port) == port &&
                       getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &info_size) == 0 &&
                       info.tcpi_state == TCP_LISTEN;
    if (found) return static_cast<int>(info.tcpi_sacked);
  }
  return 0;
}

void backlog(const std::string&) {
  ProcessGroup group = init_process_group(environment());
  if (group.is_first()) std::printf("%d\n", backlog_of(variable("MASTER_PORT")));
}

// Serves a store at MASTER_PORT, as an elastic agent does, until the file is removed.
void agent(const std::string& until_gone) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(variable("MASTER_PORT"));
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore store("127.0.0.1", options);
  while (access(until_gone.c_str(), F_OK) == 0) usleep(10'000);
}

// As a rank of an earlier attempt whose collective of NCCL timed out.
void asks_for_a_dump(const std::string&) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(variable("MASTER_PORT"));
  c10d::TCPStore("127.0.0.1", options).set("exception_dump", {0, 0, 0, 0});
}

void no_dump_is_asked_for(const std::string&) {
  ProcessGroup group = init_process_group(environment(), {.join_timeout = std::chrono::seconds(2)});
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(variable("MASTER_PORT"));
  expect(!c10d::TCPStore("127.0.0.1", options).check({"exception_dump"}),
         "no request of an earlier attempt");
}

void plain(const std::string&) {
  ProcessGroup group = init_process_group(environment(), {.join_timeout = std::chrono::seconds(2)});
  expect_sum(group);
}

// It ends after what c10d has in static variables.
void until_the_program_ends(const std::string&) {
  static ProcessGroup group = init_process_group(environment());
  expect_sum(group);
  group.barrier();
}

const std::map<std::string, std::function<void(const std::string&)>> kCases = {
    {"given_store", given_store},
    {"hash_store", hash_store},
    {"store_and_method", store_and_method},
    {"argument_against_variable", argument_against_variable},
    {"ends_with_its_scope", ends_with_its_scope},
    {"before_the_store_is_closed", before_the_store_is_closed},
    {"ends_when_the_next_attempt_connects", ends_when_the_next_attempt_connects},
    {"an_exception", an_exception},
    {"a_late_rank", a_late_rank},
    {"only_the_backend_knows", only_the_backend_knows},
    {"does_not_leave", does_not_leave},
    {"late_for_others_apart", late_for_others_apart},
    {"fails_while_others_compute", fails_while_others_compute},
    {"leaves_late", leaves_late},
    {"subgroups", subgroups},
    {"registered_backend", registered_backend},
    {"with_backend", with_backend},
    {"fails_in_the_backend", fails_in_the_backend},
    {"abort_hangs", abort_hangs},
    {"handles_an_exception", handles_an_exception},
    {"killed_before_a_subgroup", killed_before_a_subgroup},
    {"throws_in_a_thread", throws_in_a_thread},
    {"waits_for_another", waits_for_another},
    {"shared_memory", shared_memory},
    {"library", library},
    {"gloo_options", gloo_options},
    {"different_collectives", different_collectives},
    {"record", record},
    {"backlog", backlog},
    {"agent", agent},
    {"asks_for_a_dump", asks_for_a_dump},
    {"no_dump_is_asked_for", no_dump_is_asked_for},
    {"plain", plain},
    {"until_the_program_ends", until_the_program_ends},
};

}  // namespace

int main(int count, char** arguments) {
  try {
    kCases.at(arguments[1])(count > 2 ? arguments[2] : "");
    return 0;
  } catch (const PeerFailed&) {
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", one_line(error).c_str());
    return 1;
  }
}
