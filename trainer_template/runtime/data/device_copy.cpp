#include "trainer_template/runtime/data/device_copy.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace torchbridge::train {

DeviceCopy::DeviceCopy(c10::Device device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type())
                .getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

DeviceCopy::CopyingBatch DeviceCopy::begin(Batch batch) const {
  CopyingBatch copying{std::move(batch), std::nullopt};
  if (!stream_) return copying;
  // Also sets the device, which is a thread's own.
  const c10::StreamGuard guard(*stream_);
  for (at::Tensor* tensor : copying.batch.tensors()) {
    // libtorch keeps pinned memory until the copy from it is done.
    *tensor = tensor->to(stream_->device(), tensor->scalar_type(), /*non_blocking=*/true);
  }
  copying.copied.emplace(stream_->device_type());
  copying.copied->record(*stream_);
  return copying;
}

Batch DeviceCopy::finish(CopyingBatch copying) {
  if (!copying.copied) return std::move(copying.batch);
  const c10::Device device = copying.copied->device();
  const c10::Stream current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  copying.copied->block(current);
  for (const at::Tensor* tensor : copying.batch.tensors()) tensor->record_stream(current);
  return std::move(copying.batch);
}

}  // namespace torchbridge::train
