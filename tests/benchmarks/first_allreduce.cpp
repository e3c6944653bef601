// Forms the group of this job, adds up one number over all ranks and says when that was done.
// first_allreduce.py does the same.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include <ATen/ops/ones.h>
#include <torchbridge/errors.h>
#include <torchbridge/group_options.h>
#include <torchbridge/process_group.h>

#include "bridge/launch/launch.h"
#include "trainer_template/runtime/base/value_or_throw.h"

namespace {

using namespace torchbridge;
using namespace torchbridge::train;

// Since 1970, as Python's time.time().
double now() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

void first_all_reduce(ProcessGroup& group) {
  const at::Tensor ones = at::ones({1});
  group.sum(ones);
  const double done = now();
  if (ones.item<float>() != static_cast<float>(group.world_size())) {
    throw TrainError("the sum over the ranks is wrong");
  }
  std::printf("first all-reduce at %.6f on rank %d\n", done, group.rank());
  std::fflush(stdout);
}

}  // namespace

int main() {
  try {
    ProcessGroup group(value_or_throw(resolve_launch(EnvMap::from(environ))), {});
    first_all_reduce(group);
    group.leave();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first_allreduce: %s\n", error.what());
    return static_cast<int>(ExitCode::kFailed);
  }
}
