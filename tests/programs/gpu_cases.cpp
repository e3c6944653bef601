// What scripts/gpu_check asks beside the trainer, one case a run: gpu_cases CASE cpu|cuda. Prints a
// line "NAME VALUE" a finding. Those of groups and their failures are for several ranks.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torchbridge/backend.h>
#include <torchbridge/data.h>
#include <torchbridge/ddp.h>
#include <torchbridge/errors.h>
#include <torchbridge/launch.h>
#include <torchbridge/process_group.h>

#include "trainer_template/runtime/backends/cuda.h"
#include "trainer_template/runtime/backends/open_sockets.h"
#include "trainer_template/runtime/data/device_copy.h"
#include "trainer_template/runtime/data/pinned_batches.h"

namespace {

using namespace torchbridge::train;
using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void print(const char* name, double value) { std::printf("%s %.9g\n", name, value); }

void finish(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

GroupOptions bound_to(c10::DeviceType type) {
  GroupOptions options;
  options.device_id = c10::Device(type);
  return options;
}

// Its texts and numbers have no backend of their own.
GroupOptions on_one_backend(c10::DeviceType type) {
  GroupOptions options;
  options.backend = type == c10::kCPU ? "gloo" : "nccl";
  return options;
}

GroupOptions within_five_seconds(GroupOptions options) {
  options.timeout = std::chrono::seconds(5);
  return options;
}

int run_with(const GroupOptions& options, const std::function<void(ProcessGroup&)>& body) {
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [&] { return options; }, body);
}

ProcessGroup group_on(c10::DeviceType type) {
  return init_process_group(torchbridge::EnvMap::from(environ), bound_to(type));
}

bool nccl_is_connected() {
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  std::ifstream log(file ? file : "");
  const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  return text.find("Init COMPLETE") != std::string::npos;
}

// Whether NCCL's communicator is there before the first collective, by NCCL's own log; and how long
// group and collectives take.
void use_collectives(c10::DeviceType type, const GroupOptions& options) {
  const auto begin = Clock::now();
  ProcessGroup group = init_process_group(torchbridge::EnvMap::from(environ), options);
  print("formed_s", std::chrono::duration<double>(Clock::now() - begin).count());
  print("connected", nccl_is_connected());
  const at::Tensor numbers = at::full({1'000'000}, group.rank() + 1.0F, at::device(type));
  std::vector<at::Tensor> tensors = {numbers};
  const auto sum = [&] {
    group.c10d()->allreduce(tensors)->wait();  // also of one rank, where group.sum() does nothing
    finish(numbers.device());
  };
  print("first_s", seconds_of(sum));
  print("second_s", seconds_of(sum));
  print("sum", numbers[0].item<double>());
  print("recorded", flight_record().find("nccl:all_reduce") != std::string::npos);
  std::puts(("backend " + group.backend()).c_str());
  const char* rethrow = std::getenv("TORCH_NCCL_RETHROW_CUDA_ERRORS");
  std::puts((std::string("rethrow ") + (rethrow ? rethrow : "unset")).c_str());
}

void connect_eagerly(c10::DeviceType type) { use_collectives(type, bound_to(type)); }

// Without a heartbeat, whose thread would ask the backend for errors.
void connect_unwatched(c10::DeviceType type) {
  GroupOptions options = bound_to(type);
  options.heartbeat_timeout = std::chrono::seconds(0);
  use_collectives(type, options);
}

// By the first collective: the group is bound to no device.
void connect_lazily(c10::DeviceType type) { use_collectives(type, on_one_backend(type)); }

// Sample i is a row of the number i.
class Rows : public Dataset {
 public:
  std::int64_t size() const override { return 4 * kBatch; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    const auto count = std::ssize(indices);
    Batch batch{batch_tensor({count, kWidth}, at::kFloat), batch_tensor({count}, at::kLong)};
    auto* const numbers = batch.inputs.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i)
      std::fill_n(numbers + i * kWidth, kWidth, static_cast<float>(indices[i]));
    std::copy(indices.begin(), indices.end(), batch.targets.mutable_data_ptr<std::int64_t>());
    return batch;
  }
  // In pinned memory, as the loader's workers make it.
  Batch pinned_batch() const {
    std::vector<std::int64_t> indices(kBatch);
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    const PinnedBatches pinned(true);
    return collate(indices);
  }
  static constexpr std::int64_t kBatch = 4096, kWidth = 2048;
};

// Whether all batches of a loader for the device come through pinned memory.
bool loads_pinned(c10::Device device) {
  const Rows rows;
  std::atomic<int> pinned = 0, batches = 0;
  LoaderOptions options{.batch_size = Rows::kBatch, .workers = 2, .device = device};
  options.transform = [&](Batch& batch, auto) {
    ++batches;
    pinned += batch.inputs.is_pinned();
  };
  Loader loader(rows, {.size = rows.size(), .order = Order::kSequential}, options);
  while (loader.next()) finish(device);
  return batches > 0 && pinned == batches;
}

// A copy that begins behind products must not wait for them: neither the thread that begins it, nor
// the copy itself.
void overlap_copies(c10::DeviceType type) {
  ProcessGroup group = group_on(type);
  const c10::Device device = group.device();
  print("pinned", loads_pinned(device));

  const at::Tensor weights = at::ones({4096, 4096}, at::device(device));
  at::Tensor result;
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i) result = at::matmul(weights, weights);
  };
  const DeviceCopy copy(device);
  const Batch batch = Rows().pinned_batch();
  // The first ones make cuBLAS and the memory of both streams.
  for (int i = 0; i < 2; ++i) {
    multiply(1);
    const Batch there = DeviceCopy::finish(copy.begin(batch));
    finish(device);
  }
  // More would fill the queue of the GPU, and the thread would wait for that.
  constexpr int kSome = 5, kMost = 500;
  constexpr double kLong = 0.2;
  const double some_s = seconds_of([&] {
    multiply(kSome);
    finish(device);
  });
  const int products = std::clamp(static_cast<int>(kLong * kSome / some_s), kSome, kMost);

  c10::Event computed(type);
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  multiply(products);
  computed.record(c10::impl::VirtualGuardImpl(type).getStream(device));
  const double queued = passed();
  DeviceCopy::CopyingBatch copying = copy.begin(batch);
  print("begin_s", passed() - queued);
  bool copied = false, is_computed = false;
  while (!copied && !is_computed) {
    copied = copying.copied->query();
    is_computed = computed.query();
  }
  print("copied_first", copied && !is_computed);
  copying.copied->synchronize();
  print("copied_s", passed());
  const Batch there = DeviceCopy::finish(std::move(copying));
  finish(device);
  print("computed_s", passed());
  print("equal", at::equal(there.inputs.cpu(), batch.inputs) &&
                     at::equal(there.targets.cpu(), batch.targets));
}

// The device's generator gives what Python's gives from the same seed.
void draw_numbers(c10::DeviceType type) {
  ProcessGroup group = group_on(type);
  at::manual_seed(7);
  const at::Tensor numbers = at::randn({4}, at::device(group.device())).cpu();
  for (int i = 0; i < 4; ++i) print("number", numbers[i].item<double>());
}

// The sum of 1 + rank over the group, of all ranks; 1 where it is right on all of them.
void print_sum(const char* name, ProcessGroup& all, RankGroup& group,
               const std::vector<int>& ranks) {
  const at::Tensor numbers = at::full({1000}, all.rank() + 1.0F, at::device(all.device()));
  group.sum(numbers);
  float expected = 0;
  for (int rank : ranks) expected += static_cast<float>(rank) + 1;
  const bool right = numbers.eq(expected).all().item<bool>();
  print(name, static_cast<double>(all.minimum(right)));
}

std::vector<int> ranks_from(int first, int step, int world_size) {
  std::vector<int> ranks;
  for (int rank = first; rank < world_size; rank += step) ranks.push_back(rank);
  return ranks;
}

// Groups of every other rank, of a node, and of all: formed, used in turns, and ended one after the
// other.
void use_subgroups(c10::DeviceType type) {
  ProcessGroup all = group_on(type);
  const int size = all.world_size();
  const std::vector<int> even = ranks_from(0, 2, size), odd = ranks_from(1, 2, size),
                         whole = ranks_from(0, 1, size);
  {
    const auto evens = all.new_group(even), odds = all.new_group(odd), node = all.per_node();
    print_sum("halves", all, evens ? *evens : *odds, evens ? even : odd);
    print_sum("node", all, *node, node->ranks());
    print_sum("all", all, all, whole);
    print_sum("halves-again", all, evens ? *evens : *odds, evens ? even : odd);
  }
  all.leave();
}

// As nccl-tests gives it (busbw): bytes that each rank sends and receives, 2 (n - 1) / n of the
// tensor, in 10^9 a second.
void measure_bandwidth(c10::DeviceType type) {
  ProcessGroup group = group_on(type);
  const double share = 2.0 * (group.world_size() - 1) / group.world_size();
  using Sizes = std::vector<std::int64_t>;
  for (const std::int64_t mib : type == c10::kCPU ? Sizes{1, 4} : Sizes{1, 16, 256}) {
    constexpr int kTimes = 10;
    const std::int64_t bytes = mib << 20;
    const at::Tensor numbers = at::zeros({bytes / 4}, at::device(group.device()));
    const auto sum = [&](int times) {
      for (int i = 0; i < times; ++i) group.sum(numbers);
      finish(group.device());
    };
    sum(3);
    const double seconds = seconds_of([&] { sum(kTimes); }) / kTimes;
    print(("mib_" + std::to_string(mib)).c_str(),
          share * static_cast<double>(bytes) / seconds / 1e9);
  }
}

// The last rank calls `leave` while the others are in an all-reduce, after those that all are in.
void sum_without_the_last(const GroupOptions& options, void (*leave)(), int before = 20) {
  const int code = run_with(options, [&](ProcessGroup& group) {
    const at::Tensor numbers = at::zeros({1 << 20}, at::device(group.device()));
    for (int i = 0;; ++i) {
      if (i == before && group.rank() == group.world_size() - 1) leave();
      group.sum(numbers);
      finish(group.device());
    }
  });
  print("returned", code);  // no watchdog has ended the process
  std::exit(code);
}

// It fails: the all-reduce is aborted then.
void fail_amid_collectives(c10::DeviceType type) {
  sum_without_the_last(bound_to(type), [] { throw TrainError("failed on purpose"); });
}

void pause_forever() {
  for (;;) pause();
}

// It computes for longer than the collectives' timeout, until it is killed.
void be_late(c10::DeviceType type) {
  sum_without_the_last(within_five_seconds(bound_to(type)), pause_forever);
}

// For the first collective, which connects a group that is bound to no device.
void be_late_for_the_first(c10::DeviceType type) {
  sum_without_the_last(within_five_seconds(on_one_backend(type)), pause_forever, 0);
}

void be_late_for_the_end(c10::DeviceType type) {
  std::exit(run_with(within_five_seconds(on_one_backend(type)), [&](ProcessGroup& group) {
    group.sum(at::zeros({1000}, at::device(type)));
    if (group.rank() == group.world_size() - 1) pause_forever();
  }));
}

// On a GPU that is not the current one, nor that of the rank's number.
void sum_on_own_gpu(const ProcessGroup& all, RankGroup& group, c10::DeviceType type) {
  const c10::Device own(type, type == c10::kCPU ? -1 : static_cast<int>(all.rank()) + 1);
  group.sum(at::zeros({1000}, at::device(own)));
}

void begin_with_a_subgroup(c10::DeviceType type) {
  std::exit(run_with(on_one_backend(type), [&](ProcessGroup& group) {
    sum_on_own_gpu(group, *group.new_group({0, 1}), type);
    sum_on_own_gpu(group, group, type);
  }));
}

void use_own_gpu(c10::DeviceType type) {
  std::exit(run_with(on_one_backend(type), [&](ProcessGroup& group) {
    sum_on_own_gpu(group, group, type);
    group.new_group({0, 1});
  }));
}

// As where an exception destroys those of one rank.
void leave_in_different_orders(c10::DeviceType type) {
  std::exit(run_with(bound_to(type), [](ProcessGroup& group) {
    auto first = group.new_group({0, 1}), second = group.new_group({0, 1});
    (group.rank() == 0 ? first : second).reset();
  }));
}

// The GPU has not ended it, nor has it as the next subgroup is formed.
void leave_a_subgroup_amid_a_sum(c10::DeviceType type) {
  std::exit(run_with(on_one_backend(type), [&](ProcessGroup& group) {
    const at::Tensor numbers = at::ones({1000}, at::device(type));
    group.new_group({0, 1})->sum(numbers);
    const auto next = group.new_group({0, 1});
    finish(numbers.device());
    next->throw_if_aborted();
  }));
}

void end_amid_a_sum(const GroupOptions& options, c10::DeviceType type) {
  std::exit(run_with(options,
                     [&](ProcessGroup& group) { group.sum(at::ones({1000}, at::device(type))); }));
}
void end_all_amid_a_sum(c10::DeviceType type) { end_amid_a_sum(bound_to(type), type); }
void end_nccl_amid_a_sum(c10::DeviceType type) { end_amid_a_sum(on_one_backend(type), type); }

void end_unwatched(c10::DeviceType type) {
  GroupOptions options = bound_to(type);
  options.heartbeat_timeout = std::chrono::seconds(0);
  end_amid_a_sum(options, type);
}

// For the next subgroup, before which NCCL closes the one before with the other ranks of the node.
void be_late_for_a_subgroup(c10::DeviceType type) {
  std::exit(run_with(within_five_seconds(bound_to(type)), [&](ProcessGroup& group) {
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && group.rank() == group.world_size() - 1) pause_forever();
      group.new_group(ranks_from(0, 1, group.world_size()))
          ->sum(at::zeros({1000}, at::device(type)));
    }
  }));
}

// As Python's ranks: no heartbeat, and the timeout does not come first.
void train_unwatched(c10::DeviceType type) {
  GroupOptions options = bound_to(type);
  options.heartbeat_timeout = std::chrono::seconds(0);
  sum_without_the_last(options, [] { throw TrainError("came too far"); });
}

// Rank 1, while a subgroup is in scope whose collectives are in progress.
void fail_beside_a_subgroup(c10::DeviceType type) {
  std::exit(run_with(bound_to(type), [](ProcessGroup& group) {
    constexpr int kTimes = 10;
    const auto subgroup = group.new_group({0, 1});
    const at::Tensor numbers = at::zeros({1 << 20}, at::device(group.device()));
    for (int i = 0; i < kTimes; ++i) subgroup->sum(numbers);
    if (group.rank() == 1) throw TrainError("failed on purpose");
    finish(group.device());
    subgroup->throw_if_aborted();
  }));
}

// Ranks 0 and 1 form a subgroup, within five seconds.
void form_a_subgroup(c10::DeviceType type) {
  std::exit(run_with(within_five_seconds(bound_to(type)), [](ProcessGroup& group) {
    group.new_group({0, 1});
  }));
}

// A bucket of gradients, as DDP's, that a hook has reduced on streams of its own.
at::Tensor reduced_bucket(ProcessGroup& group) {
  constexpr std::int64_t kSize = 1 << 20;
  const at::Tensor buffer = at::zeros({kSize}, at::device(group.device()));
  c10d::GradBucket bucket(/*index=*/0, /*bucket_count=*/1, buffer, {0}, {kSize}, {{kSize}},
                          {buffer}, std::nullopt);
  bf16_compress_hook(group).run(bucket)->wait();
  return buffer;
}

// An index outside of its table: CUDA's device-side assert, which the next call that waits for the
// GPU reports. The batch in pinned memory, the bucket and the tensors are destroyed after it, when
// each call of CUDA fails.
void fail_on_the_device(c10::DeviceType type) {
  const int code = run_with(bound_to(type), [](ProcessGroup& group) {
    const Batch batch = DeviceCopy::finish(DeviceCopy(group.device()).begin(Rows().pinned_batch()));
    const at::Tensor bucket = reduced_bucket(group);
    const at::Tensor outside =
        at::full({1}, Rows::kBatch, at::device(group.device()).dtype(at::kLong));
    const at::Tensor row = at::index_select(batch.inputs, 0, outside);
    group.sum(row);
    std::printf("row %f\n", row.sum().item<double>());
  });
  std::exit(code);
}

// The tensor is main()'s, as it were, and outlives the group. Another stream has used it, so that
// its end is a call of CUDA.
int code_with_a_tensor(c10::DeviceType type) {
  at::Tensor kept;
  return run_with(bound_to(type), [&](ProcessGroup& group) {
    kept = at::zeros({1}, at::device(group.device()));
    kept.record_stream(c10::impl::VirtualGuardImpl(type).getStreamFromGlobalPool(group.device()));
    std::vector<at::Tensor> tensors = {at::zeros({1}, kept.options())};
    group.c10d()->allreduce(tensors)->wait();
    std::printf("sum %f\n", tensors[0].item<double>());
  });
}

void keep_a_tensor(c10::DeviceType type) { std::exit(code_with_a_tensor(type)); }

// An exception that no handler catches.
void throw_in_a_thread(c10::DeviceType) {
  std::exit(run_with({}, [](ProcessGroup&) {
    std::thread([] { throw TrainError("thrown in a thread"); }).join();
  }));
}

// The interface on which NCCL listens for its ranks; needs no GPU.
void find_interface(c10::DeviceType) {
  find_backend("nccl");
  auto* const get_unique_id =
      reinterpret_cast<int (*)(char*)>(dlsym(RTLD_DEFAULT, "ncclGetUniqueId"));
  const NewListeners listeners;
  char id[128];  // an ncclUniqueId
  if (get_unique_id == nullptr || get_unique_id(id) != 0) throw TrainError("ncclGetUniqueId fails");
  for (const std::string& name : listeners.interfaces())
    std::printf("interface %s\n", name.c_str());
}

// libtorch_cuda.so opens and says so; needs no GPU.
void open_library(c10::DeviceType) {
  open_cuda();
  print("guard", c10::impl::hasDeviceGuardImpl(c10::kCUDA));
  print("devices", at::hasCUDA());
}

const std::map<std::string, void (*)(c10::DeviceType)> kCases = {
    {"abort", fail_amid_collectives},
    {"assert", fail_on_the_device},
    {"bandwidth", measure_bandwidth},
    {"eager", connect_eagerly},
    {"end", be_late_for_the_end},
    {"end-amid", end_all_amid_a_sum},
    {"end-nccl-amid", end_nccl_amid_a_sum},
    {"end-unwatched", end_unwatched},
    {"first", be_late_for_the_first},
    {"interface", find_interface},
    {"kept", keep_a_tensor},
    {"late", be_late},
    {"late-subgroup", be_late_for_a_subgroup},
    {"lazy", connect_lazily},
    {"open", open_library},
    {"order", leave_in_different_orders},
    {"overlap", overlap_copies},
    {"random", draw_numbers},
    {"scope", fail_beside_a_subgroup},
    {"scope-amid", leave_a_subgroup_amid_a_sum},
    {"scope-first", begin_with_a_subgroup},
    {"split", form_a_subgroup},
    {"subgroups", use_subgroups},
    {"uncaught", throw_in_a_thread},
    {"used", use_own_gpu},
    {"unwatched", connect_unwatched},
    {"unwatched-sums", train_unwatched}};

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc == 3 ? kCases.find(argv[1]) : kCases.end();
  if (found == kCases.end()) return std::fputs("gpu_cases: expected CASE cpu|cuda\n", stderr), 2;
  try {
    found->second(c10::Device(argv[2]).type());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_cases: %s\n", one_line(error).c_str());
    return 1;
  }
}
