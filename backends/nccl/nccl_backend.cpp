// The backend nccl. A library of its own, because libtorch_cuda costs a process 350 MB and 0.1 s even on a machine
// without a GPU.
#include <cstdlib>
#include <exception>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "backends/nccl/nccl_options.h"
#include "trainer_template/runtime/backends/backend.h"

namespace torchbridge::nccl {
namespace {

using train::BackendRequest;
using train::MadeBackend;

c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> options_of(const BackendRequest& request) {
  auto options = c10d::ProcessGroupNCCL::Options::create(request.options.nccl.high_priority_stream);
  options->config = config_of(request.options.nccl);
  options->timeout = request.timeout;
  options->group_name = request.group_name;
  options->global_ranks_in_group = request.ranks;
  if (auto* whole = dynamic_cast<c10d::ProcessGroupNCCL*>(request.split_from)) {
    options->split_from = c10::intrusive_ptr<c10d::ProcessGroupNCCL>::unsafe_reclaim_from_nonowning(whole);
    options->split_color = request.split_color;
  }
  return options;
}

// The calling thread may catch nothing. After a CUDA error every call of CUDA throws it again.
void abort_quietly(c10d::ProcessGroupNCCL& nccl) {
  try {
    nccl.abort();
  } catch (const std::exception&) {
    // The group is broken already, and the first error is the one to report.
  }
}

MadeBackend make(const BackendRequest& request) {
  auto backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size, options_of(request));
  backend->setSequenceNumberForGroup();
  auto* const nccl = backend.get();
  return {std::move(backend), [nccl] { abort_quietly(*nccl); }};
}

// NCCL splits a communicator collectively over all its ranks, also those outside of the new group.
void stay_out(c10d::Backend& split_from, c10::Device device) {
  if (auto* whole = dynamic_cast<c10d::ProcessGroupNCCL*>(&split_from)) whole->performNocolorSplit(device);
}

}  // namespace
}  // namespace torchbridge::nccl

extern "C" __attribute__((visibility("default"))) void torchbridge_fill_backend_entry_1(
    torchbridge::train::BackendEntry& entry) {
  // NCCL's watchdog would throw a CUDA error in its own thread, which ends the process by SIGABRT before its message is
  // written.
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", /*overwrite=*/0);
  entry = {{"cuda"}, torchbridge::nccl::make, torchbridge::nccl::stay_out};
}
