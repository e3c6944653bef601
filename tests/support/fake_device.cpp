#include "tests/support/fake_device.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace fake_device {
namespace {

using c10::Device;
using c10::DeviceType;
using c10::Stream;
using c10::StreamId;

std::recursive_mutex mutex;  // a copy that is done releases tensors
struct Queue {
  std::deque<std::function<void()>> copies;
  std::size_t done = 0;  // copies, and gone
};
std::map<StreamId, Queue> queues;
std::vector<Copy> begun;
std::vector<StreamId> kept_for;
std::set<const void*> pinned_memory;
std::atomic<bool> is_broken{false};
std::atomic<bool> pinned_memory_rejected{false};
StreamId last_stream = 0;
thread_local StreamId current_stream = 0;
thread_local Waits own_waits;

struct Event {
  StreamId stream = 0;
  std::size_t behind = 0;  // copies that the queue ever had
};

constexpr int kDeviceAssert = 710;  // cudaErrorAssert

void check_device() {
  if (is_broken)
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kDeviceAssert,
                                "CUDA error: device-side assert triggered");
}

// There is no GPU that does it meanwhile.
void run_until(const Event& event) {
  check_device();
  const std::lock_guard lock(mutex);
  for (Queue& queue = queues[event.stream]; queue.done < event.behind && !queue.copies.empty();
       ++queue.done) {
    queue.copies.front()();
    queue.copies.pop_front();
  }
}

Stream stream(StreamId id) { return Stream(Stream::UNSAFE, kDevice, id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kDevice.type(); }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return stream(current_stream); }
  Stream getStreamFromGlobalPool(Device, bool) const override {
    const std::lock_guard lock(mutex);
    return stream(++last_stream);
  }
  Stream exchangeStream(Stream next) const override {
    return stream(std::exchange(current_stream, next.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  void record(void** event, const Stream& of, c10::DeviceIndex, c10::EventFlag) const override {
    const std::lock_guard lock(mutex);
    if (!*event) *event = new Event;
    const Queue& queue = queues[of.id()];
    *static_cast<Event*>(*event) = {of.id(), queue.done + queue.copies.size()};
  }
  void block(void* event, const Stream&) const override {
    ++own_waits.of_streams;
    run_until(*static_cast<Event*>(event));
  }
  void synchronizeDevice(c10::DeviceIndex) const override { check_device(); }
  bool queryStream(const Stream&) const override { return check_device(), true; }
  void synchronizeEvent(void* event) const override {
    ++own_waits.of_the_thread;
    run_until(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Memory final : c10::Allocator {
  explicit Memory(Device memory_of, bool pinned) : device(memory_of), is_pinned(pinned) {}
  c10::DataPtr allocate(std::size_t size) override {
    if (is_pinned) check_device();  // libtorch asks the events of memory that was released
    TORCH_CHECK(!is_pinned || !pinned_memory_rejected, "out of locked memory");
    void* memory = std::calloc(size + 1, 1);
    const std::lock_guard lock(mutex);
    if (is_pinned) pinned_memory.insert(memory);
    return {memory, memory, &release, device};
  }
  static void release(void* memory) {
    const std::lock_guard lock(mutex);
    pinned_memory.erase(memory);
    std::free(memory);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    std::memcpy(to, from, size);
  }
  const Device device;
  const bool is_pinned;
};

Memory on_device(kDevice, false), pinned(c10::kCPU, true);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  bool isPinnedPtr(const void* memory) const override {
    const std::lock_guard lock(mutex);
    return pinned_memory.contains(memory);
  }
};

Hooks hooks;
const bool registered = [] {
  c10::register_privateuse1_backend("fake");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &on_device,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &on_device,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool is_pinned =
      hooks.isPinnedPtr(from.storage().data()) || hooks.isPinnedPtr(to.storage().data());
  const auto copy = [from, to] {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  };
  const std::lock_guard lock(mutex);
  begun.push_back({current_stream, is_pinned});
  if (non_blocking && is_pinned) {
    queues[current_stream].copies.push_back(copy);
  } else {
    copy();
  }
  return to;
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size,
                      c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
  return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options().device(c10::kCPU));
}

at::Tensor& fill(at::Tensor& tensor, const at::Scalar& value) {
  on_host(tensor).fill_(value);
  return tensor;
}

at::Scalar item(const at::Tensor& tensor) { return on_host(tensor).item(); }

void record_stream(at::Tensor&, Stream of) {
  const std::lock_guard lock(mutex);
  kept_for.push_back(of.id());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("fill_.Scalar", &fill);
  library.impl("_local_scalar_dense", &item);
  library.impl("record_stream", &record_stream);
}

}  // namespace

std::vector<Copy> copies() {
  const std::lock_guard lock(mutex);
  return begun;
}

std::size_t waiting() {
  const std::lock_guard lock(mutex);
  std::size_t count = 0;
  for (const auto& [_, queue] : queues) count += queue.copies.size();
  return count;
}

std::vector<c10::StreamId> recorded_streams() {
  const std::lock_guard lock(mutex);
  return kept_for;
}

Waits waits() { return own_waits; }

void reject_pinned_memory(bool rejected) { pinned_memory_rejected = rejected; }

void set_broken(bool broken) { is_broken = broken; }

void forget() {
  decltype(queues) dropped;  // its tensors are released without the lock
  const std::lock_guard lock(mutex);
  dropped.swap(queues);
  begun.clear();
  kept_for.clear();
}

}  // namespace fake_device
