// Communication hooks: they reduce a bucket of gradients over the ranks instead of DDP's own all-reduce.
#pragma once

#include <functional>
#include <string>

#include <ATen/core/ivalue.h>

#include "trainer_template/runtime/process_group/process_group.h"

namespace c10d {
class GradBucket;
}

namespace torchbridge::train {

// `run` is called in backward as soon as the bucket's gradients are complete, in the same order on all ranks. It starts
// the reduction and returns a future of the reduced tensor, of the same size and type as bucket.getBuffer(). Work may
// be chained to it with then(), which runs on a thread of the group's backend. backward() throws an exception of `run`
// or of the future. <torch/csrc/distributed/c10d/comm.hpp> has the bucket.
struct CommHook {
  std::string name;  // in DistributedDataParallel::logging_data
  std::function<c10::intrusive_ptr<c10::ivalue::Future>(c10d::GradBucket& bucket)> run;
};

// Python's hooks of the same names (torch.distributed.algorithms.ddp_comm_hooks.default_hooks), equal bit for bit.
// c10d's own C++ hooks cannot be composed, and there is none for bf16. The group must outlive the model that uses them.
CommHook allreduce_hook(ProcessGroup& group);
// Halve the bytes that are sent: cast, divide by the world size, sum, cast back.
CommHook fp16_compress_hook(ProcessGroup& group);
CommHook bf16_compress_hook(ProcessGroup& group);
// The same around another hook, which then sees a bucket of that type.
CommHook fp16_compress_wrapper(CommHook hook);
CommHook bf16_compress_wrapper(CommHook hook);

}  // namespace torchbridge::train
