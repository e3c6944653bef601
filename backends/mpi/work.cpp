#include "backends/mpi/work.h"

#include <utility>

namespace torchbridge::mpi {
namespace {

// As in gloo: a list of tensors, or a list of lists where there are several.
c10::TypePtr type_of(const TensorLists& outputs) {
  c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::ListType::create(list) : list;
}

c10::IValue value_of(const TensorLists& outputs) {
  if (outputs.empty()) return c10::IValue(std::vector<at::Tensor>());
  return outputs.size() > 1 ? c10::IValue(outputs) : c10::IValue(outputs.front());
}

}  // namespace

MpiWork::MpiWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                 const std::vector<at::Tensor>& inputs, TensorLists outputs)
    : Work(rank, type, title, inputs),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(type_of(outputs_))),
      sequence_(sequence) {}

std::vector<at::Tensor> MpiWork::result() {
  TORCH_CHECK(isCompleted(), "the operation is still in progress: call wait() before result()");
  std::vector<at::Tensor> all;
  for (const auto& list : outputs_) all.insert(all.end(), list.begin(), list.end());
  return all;
}

int MpiWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_ && source_ >= 0, "sourceRank() needs a completed receive from any source");
  return source_;
}

void MpiWork::complete(std::exception_ptr error, int source) {
  {
    const std::lock_guard lock(mutex_);
    source_ = source;
  }
  // The future before the work, as in gloo: callbacks have run when wait() returns.
  try {
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(value_of(outputs_));
    }
  } catch (const std::exception&) {
    // An error of a callback: its own future has it.
  }
  finish(error);
}

}  // namespace torchbridge::mpi
