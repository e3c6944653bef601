// The backend "aborted": gloo, until the all-reduce of number ABORTED_AT returns wrong values and
// no error, as NCCL's do after an abort. Only getError() shows it.
#include <atomic>
#include <cstdlib>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torchbridge/backend.h>

#include "trainer_template/runtime/backends/c10d_versions.h"

namespace {

using namespace torchbridge::train;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

class DoneWork : public c10d::Work {
 public:
  explicit DoneWork(const Tensors& tensors)
      : future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(tensors));
    finish();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class Aborted : public c10d::Backend {
 public:
  explicit Aborted(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}
  const std::string getBackendName() const override { return "aborted"; }
  c10d::ErrorType getError() override {
    return is_aborted_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (++count_ < at_) return gloo_->allreduce(tensors, options);
    is_aborted_ = true;
    tensors[0].add_(1000);
    return c10::make_intrusive<DoneWork>(tensors);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return gloo_->broadcast(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return gloo_->allgather(outputs, inputs, options);
  }
  WorkPtr TORCHBRIDGE_BACKENDS_ALL_GATHER_SINGLE(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return gloo_->TORCHBRIDGE_BACKENDS_ALL_GATHER_SINGLE(output, input, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }

 private:
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const int at_ = std::atoi(std::getenv("ABORTED_AT"));
  int count_ = 0;
  std::atomic<bool> is_aborted_{false};
};

MadeBackend make(const BackendRequest& request) {
  auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(request.address)};
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.size,
                                                          options);
  return {c10::make_intrusive<Aborted>(std::move(gloo)), [] {}};
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void torchbridge_fill_backend_entry_4(
    BackendEntry& entry) {
  entry = {{"cpu"}, make, {}};
}
