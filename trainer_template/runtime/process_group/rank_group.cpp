#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/ScopeExit.h>
#include <torchbridge/errors.h>
#include <torchbridge/process_group.h>

#include "bridge/base/message_text.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "trainer_template/runtime/process_group/form_group.h"
#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

namespace torchbridge::train {
namespace {

// The host waits a little longer, so that the backend's own error comes first.
constexpr std::chrono::milliseconds kAfterLimit{1000};

// How often a barrier may take its limit: gloo's in each of its steps (gloo/barrier.cc).
int steps_of_barrier(const c10d::Backend& backend, int ranks) {
  return backend.getBackendName() == "gloo" ? std::bit_width(static_cast<unsigned>(ranks - 1)) : 1;
}

// Instead of wait(). NCCL's barrier has no timeout of its own: wait() without a time would be for
// the GPU, which nothing ends where no heartbeat is. With one, and after an error, it would abort,
// which may hang.
void wait_for_gpu(c10d::Work& barrier, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPause{1};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!barrier.isCompleted()) {
    if (std::chrono::steady_clock::now() >= deadline)
      C10_THROW_ERROR(DistBackendError, "the barrier at the end of a group timed out");
    std::this_thread::sleep_for(kPause);
  }
  if (const std::exception_ptr error = barrier.exception()) std::rethrow_exception(error);
}

at::Tensor bytes_of(const std::string& text, std::int64_t size) {
  at::Tensor bytes = at::full({size}, 0, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<std::uint8_t>(), text.data(), text.size());
  return bytes;
}

std::string text_in(const at::Tensor& bytes) {
  const at::Tensor here = bytes.cpu();
  return {reinterpret_cast<const char*>(here.const_data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(here.numel())};
}

}  // namespace

RankGroup::RankGroup(int rank, int world_size) : rank_(rank), world_size_(world_size) {}
RankGroup::~RankGroup() = default;

void RankGroup::take(FormedGroup formed) {
  formed_ = std::make_unique<FormedGroup>(std::move(formed));
}

bool RankGroup::is_unwinding() const { return std::uncaught_exceptions() > exceptions_; }

const c10::intrusive_ptr<c10d::ProcessGroup>& RankGroup::c10d() const { return formed_->group; }

void RankGroup::throw_if_aborted() const { formed_->connections()->throw_if_aborted(); }

at::TensorOptions RankGroup::small() const {
  const auto devices = c10d()->getDeviceTypes();
  for (const c10::Device& device : devices) {
    if (device.is_cpu()) return at::device(at::kCPU);
  }
  return at::device(c10d()->getBoundDeviceId().value_or(devices.front()));
}

void RankGroup::barrier() {
  c10d::BarrierOptions options;
  options.device = small().device();
  c10d()->barrier(options)->wait();
  throw_if_aborted();
}

void RankGroup::sum(const at::Tensor& tensor) {
  if (world_size() == 1) return;
  // Where NCCL is the only backend, a tensor on the CPU is copied to the GPU and back.
  const bool is_copied = tensor.is_cpu() && !small().device().is_cpu();
  std::vector<at::Tensor> tensors = {is_copied ? tensor.to(small().device()) : tensor};
  c10d()->allreduce(tensors)->wait();
  if (!is_copied) return;
  tensor.copy_(tensors[0]);
  throw_if_aborted();
}

void RankGroup::broadcast(const at::Tensor& tensor, int root) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  c10d()->broadcast(tensors, options)->wait();
}

std::int64_t RankGroup::minimum(std::int64_t value) {
  std::vector<at::Tensor> tensors = {at::full({1}, value, small().dtype(at::kLong))};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  c10d()->allreduce(tensors, options)->wait();
  const auto lowest = tensors[0].item<std::int64_t>();
  throw_if_aborted();
  return lowest;
}

std::string RankGroup::broadcast(const std::string& text, int root) {
  const at::Tensor size =
      at::full({1}, static_cast<std::int64_t>(text.size()), small().dtype(at::kLong));
  broadcast(size, root);
  const auto length = size.item<std::int64_t>();
  throw_if_aborted();
  if (length == 0) return {};
  const at::Tensor bytes = rank() == root ? bytes_of(text, length).to(small().device())
                                          : at::empty({length}, small().dtype(at::kByte));
  broadcast(bytes, root);
  std::string sent = text_in(bytes);
  throw_if_aborted();
  return sent;
}

std::vector<std::string> RankGroup::all_gather(const std::string& text) {
  // Tensors of one size: eight bytes of length, then the text.
  constexpr std::size_t kLength = 8;
  const std::int64_t longest = -minimum(-static_cast<std::int64_t>(text.size()));
  std::string framed(kLength, '\0');
  const std::uint64_t size = text.size();
  std::memcpy(framed.data(), &size, kLength);
  framed += text;

  std::vector<at::Tensor> inputs = {
      bytes_of(framed, static_cast<std::int64_t>(kLength) + longest).to(small().device())};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < world_size(); ++i) outputs[0].push_back(at::empty_like(inputs[0]));
  c10d()->allgather(outputs, inputs)->wait();

  std::vector<std::string> gathered, texts;
  for (const at::Tensor& output : outputs[0]) gathered.push_back(text_in(output));
  throw_if_aborted();
  for (const std::string& got : gathered) {
    std::uint64_t length = 0;
    std::memcpy(&length, got.data(), kLength);
    texts.push_back(got.substr(kLength, length));
  }
  return texts;
}

void RankGroup::meet(Meeting meeting, std::chrono::milliseconds limit) {
  if (world_size_ == 1) return;
  // The backend's own barrier: c10d's keeps a tensor in a static variable, which is destroyed
  // before a group that is static itself.
  c10d::BarrierOptions options;
  options.timeout = limit;
  options.device = small().device();
  const auto connections = formed_->connections();
  // So that a late rank is known for it.
  if (meeting == Meeting::kAgain)
    connections->continue_collective();
  else
    connections->begin_collective(meeting == Meeting::kOfAll);
  const auto end = c10::make_scope_exit([&] { connections->end_collective(); });
  const auto backend = c10d()->getBackend(options.device->type());
  const auto barrier = connections->call_backend([&] { return backend->barrier(options); });
  if (options.device->is_cpu())
    barrier->wait(steps_of_barrier(*backend, world_size_) * limit + kAfterLimit);
  else
    wait_for_gpu(*barrier, limit + kAfterLimit);
  throw_if_aborted();
}

void RankGroup::shut_down() {
  AbortWatchdog watchdog(kEndTimeout, [connections = formed_->connections()] {
    connections->report_and_exit(TrainError(
        formatted("the backend did not end its connections within {}", seconds(kEndTimeout))));
  });
  watchdog.start();
  formed_->shut_down();
  release();
}

void RankGroup::release() { formed_.reset(); }

bool RankGroup::is_on_gpu() const {
  return !std::ranges::all_of(c10d()->getDeviceTypes(), &c10::Device::is_cpu);
}

void RankGroup::keep_until_end(bool is_orderly) {
  const std::shared_ptr<FormedGroup> group = std::move(formed_);
  Connections& connections = *group->connections();
  FormedGroup* const formed = group.get();
  if (is_orderly && !connections.are_broken())
    connections.keep(formed->number, {group, [formed] { formed->shut_down(); }, kEndTimeout});
  else
    connections.keep(formed->number, {group, [formed] { formed->abort(); }, kAbortTimeout});
}

Subgroup::Subgroup(FormedGroup formed, std::vector<int> ranks, int rank)
    : RankGroup(rank, static_cast<int>(ranks.size())), ranks_(std::move(ranks)) {
  take(std::move(formed));
}

// NCCL's end of a communicator waits until the other ranks of the node end theirs, which may come
// later; and after an exception it may hang or throw, before the other ranks know why. So the whole
// group does it when all ranks have met: at its end, or when it forms the next one.
Subgroup::~Subgroup() {
  const bool is_orderly = !is_unwinding();
  try {
    if (is_orderly && !is_on_gpu()) {
      meet(Meeting::kOfSubgroup, kLeaveTimeout);
      shut_down();
    }
  } catch (const std::exception&) {
    // The whole group reports which ranks were lost.
  }
  if (is_formed()) keep_until_end(is_orderly && is_on_gpu());
}

}  // namespace torchbridge::train
