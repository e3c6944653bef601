// What scripts/gpu_check asks beside the trainer, one case a run: gpu_cases CASE cpu|cuda. Prints a line "NAME VALUE" a finding.
#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/group/cuda.h>
#include <torchbridge/train/group/process_group.h>
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
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

ProcessGroup group_on(c10::DeviceType type) {
  GroupOptions options;
  options.device_id = c10::Device(type);
  return init_process_group(torchbridge::EnvMap::from(environ), options);
}

bool nccl_is_connected() {
  const char* file = std::getenv("NCCL_DEBUG_FILE");
  std::ifstream log(file ? file : "");
  const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  return text.find("Init COMPLETE") != std::string::npos;
}

// Whether NCCL's communicator is there before the first collective, by NCCL's own log; and how long group and collectives take.
void connect_eagerly(c10::DeviceType type) {
  const auto begin = Clock::now();
  ProcessGroup group = group_on(type);
  print("formed_s", std::chrono::duration<double>(Clock::now() - begin).count());
  print("connected", nccl_is_connected());
  const at::Tensor numbers = at::full({1'000'000}, group.rank() + 1.0F, at::device(group.device()));
  const auto sum = [&] {
    group.sum(numbers);
    finish(group.device());
  };
  print("first_s", seconds_of(sum));
  print("second_s", seconds_of(sum));
  print("sum", numbers[0].item<double>());
  std::puts(("backend " + group.backend()).c_str());
}

// Rows of ones, in batches that take as long to copy as to compute with.
class Rows : public Dataset {
 public:
  std::int64_t size() const override { return 20 * kBatch; }
  Batch collate(std::span<const std::int64_t> indices) const override {
    const auto count = std::ssize(indices);
    Batch batch{batch_tensor({count, kWidth}, at::kFloat), batch_tensor({count}, at::kLong)};
    std::fill_n(batch.inputs.mutable_data_ptr<float>(), batch.inputs.numel(), 1.0F);
    std::copy(indices.begin(), indices.end(), batch.targets.mutable_data_ptr<std::int64_t>());
    return batch;
  }
  static constexpr std::int64_t kBatch = 4096, kWidth = 2048;
};

// Seconds for an epoch of batches that are loaded onto the device, with work for each.
double epoch_s(c10::Device device, const std::function<void(const at::Tensor&)>& work, std::atomic<bool>* pinned = nullptr) {
  const Rows rows;
  LoaderOptions options{.batch_size = Rows::kBatch, .workers = 2, .device = device};
  if (pinned) options.transform = [=](Batch& batch, auto) { *pinned = batch.inputs.is_pinned(); };
  Loader loader(rows, {.size = rows.size(), .order = Order::kSequential}, options);
  return seconds_of([&] {
    while (const auto batch = loader.next()) work(batch->inputs);
    finish(device);
  });
}

// An epoch that copies and computes takes less than one that copies and one that computes, one after the other.
void overlap_copies(c10::DeviceType type) {
  ProcessGroup group = group_on(type);
  const c10::Device device = group.device();
  const at::Tensor weights = at::ones({Rows::kWidth, Rows::kWidth}, at::device(device));
  at::Tensor result;
  int products = 1;
  const auto compute = [&](const at::Tensor& inputs) {
    for (int i = 0; i < products; ++i) result = at::matmul(inputs, weights);
  };
  std::atomic<bool> pinned = false;
  epoch_s(device, compute, &pinned);  // makes pinned memory and cuBLAS
  const double copy = epoch_s(device, [](const at::Tensor&) {});
  const at::Tensor there = at::ones({Rows::kBatch, Rows::kWidth}, at::device(device));
  const auto compute_all = [&] {
    for (std::int64_t i = 0; i < Rows().size() / Rows::kBatch; ++i) compute(there);
    finish(device);
  };
  products = std::max(1, static_cast<int>(copy / seconds_of(compute_all)));
  print("pinned", pinned);
  print("copy_s", copy);
  print("compute_s", seconds_of(compute_all));
  print("both_s", epoch_s(device, compute));
}

// The device's generator gives what Python's gives from the same seed.
void draw_numbers(c10::DeviceType type) {
  ProcessGroup group = group_on(type);
  at::manual_seed(7);
  const at::Tensor numbers = at::randn({4}, at::device(group.device())).cpu();
  for (int i = 0; i < 4; ++i) print("number", numbers[i].item<double>());
}

// libtorch_cuda.so opens and says so; needs no GPU.
void open_library(c10::DeviceType) {
  open_cuda();
  print("guard", c10::impl::hasDeviceGuardImpl(c10::kCUDA));
  print("devices", at::hasCUDA());
}

const std::map<std::string, void (*)(c10::DeviceType)> kCases = {
    {"eager", connect_eagerly}, {"open", open_library}, {"overlap", overlap_copies}, {"random", draw_numbers}};

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
