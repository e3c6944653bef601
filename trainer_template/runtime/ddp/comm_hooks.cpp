#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torchbridge/ddp.h>
#include <torchbridge/process_group.h>

namespace torchbridge::train {
namespace {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// Divides first, so that half floats do not overflow. The future holds the sum.
Future mean_over_ranks(ProcessGroup& group, at::Tensor tensor) {
  tensor.div_(group.world_size());
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return group.c10d()->allreduce(tensors)->getFuture()->then(
      [](c10::ivalue::Future& sum) { return c10::IValue(sum.value().toTensorVector()[0]); },
      c10::TensorType::get());
}

// Casts back into the original buffer, which saves memory.
Future decompressed(const Future& result, at::Tensor buffer) {
  return result->then(
      [buffer = std::move(buffer)](c10::ivalue::Future& compressed) {
        const at::NoGradGuard no_grad;
        buffer.copy_(compressed.value().toTensor());
        return c10::IValue(buffer);
      },
      c10::TensorType::get());
}

CommHook compress(std::string name, ProcessGroup& group, at::ScalarType type) {
  return {std::move(name), [&group, type](c10d::GradBucket& bucket) {
            const at::Tensor& buffer = bucket.getBuffer();
            return decompressed(mean_over_ranks(group, buffer.to(type)), buffer);
          }};
}

CommHook wrap(std::string name, CommHook hook, at::ScalarType type) {
  return {name + "(" + hook.name + ")",
          [run = std::move(hook.run), type](c10d::GradBucket& bucket) {
            const at::Tensor buffer = bucket.getBuffer();
            at::Tensor small = buffer.to(type);
            bucket.setBuffer(small);
            return decompressed(run(bucket), buffer);
          }};
}

}  // namespace

CommHook allreduce_hook(ProcessGroup& group) {
  return {"allreduce_hook", [&group](c10d::GradBucket& bucket) {
            return mean_over_ranks(group, bucket.getBuffer());
          }};
}

CommHook fp16_compress_hook(ProcessGroup& group) {
  return compress("fp16_compress_hook", group, at::kHalf);
}
CommHook bf16_compress_hook(ProcessGroup& group) {
  return compress("bf16_compress_hook", group, at::kBFloat16);
}

CommHook fp16_compress_wrapper(CommHook hook) {
  return wrap("fp16_compress_wrapper", std::move(hook), at::kHalf);
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return wrap("bf16_compress_wrapper", std::move(hook), at::kBFloat16);
}

}  // namespace torchbridge::train
