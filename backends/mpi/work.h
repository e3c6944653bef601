// The c10d::Work of one operation over MPI, with a future.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torchbridge::mpi {

using TensorLists = std::vector<std::vector<at::Tensor>>;

class MpiWork : public c10d::Work {
 public:
  MpiWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
          const std::vector<at::Tensor>& inputs, TensorLists outputs);

  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

  // Once, on MPI's thread. `source`: the sender of a receive from any source.
  void complete(std::exception_ptr error, int source = -1);

 private:
  TensorLists outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::uint64_t sequence_;
  int source_ = -1;
};

}  // namespace torchbridge::mpi
