// A c10d backend over MPI, for a stock libtorch. It has the functions of ProcessGroupMPI, which
// only a PyTorch that was built for MPI has, and those of gloo.
//
// Includes no mpi.h: a program that links this needs no MPI to compile.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace torchbridge::mpi {

struct Communicator;
class Requests;
using TensorLists = std::vector<std::vector<at::Tensor>>;

struct MpiOptions : c10d::Backend::Options {
  explicit MpiOptions(std::chrono::milliseconds limit = kBackendDefaultTimeout)
      : Options("mpi", limit) {}
  // The most elements of one reduction, and bytes of one message, that are passed to MPI as a plain
  // count; larger ones are divided into parts and blocks. Must be the same on all ranks. For tests.
  std::int64_t largest_count = std::int64_t{1} << 30;
};

// The group of some or all ranks of MPI_COMM_WORLD, in their order.
//
// Operations may be started from any thread; all ranks of a group must start its collectives in the
// same order, sends and receives in any order. Each returns at once and ends through its Work: with
// an error of MPI, or with a timeout, after which the group cannot be used. Tensors are on the CPU,
// or on a GPU where MPI reports support for CUDA memory; they need not be contiguous. Callbacks of
// futures run on the one thread that drives MPI: they must not wait for other operations.
class MpiBackend : public c10d::Backend {
 public:
  // Collective over options->global_ranks_in_group, which are ranks of MPI_COMM_WORLD, or over all
  // where that is empty; null on a rank that is not among them. Initialises MPI where the program
  // has not done it; then it is finalised when the program ends with exit code 0 and nothing under
  // way.
  static c10::intrusive_ptr<MpiBackend> create(
      c10::intrusive_ptr<MpiOptions> options = c10::make_intrusive<MpiOptions>());

  MpiBackend(std::shared_ptr<Communicator> communicator, c10::intrusive_ptr<MpiOptions> options);

  const std::string getBackendName() const override { return "mpi"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  bool supportsSplitting() const override { return true; }
  // Collective over `ranks` of this group alone.
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  void abort() override;
  void shutdown() override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors,
                           const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(TensorLists& outputs, Tensors& inputs,
                 const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input,
                     std::vector<std::int64_t>& output_splits,
                     std::vector<std::int64_t>& input_splits,
                     const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  struct WorkDescription;
  struct Step;
  Work start(WorkDescription call, std::vector<Step> steps);
  Step allgather_step(const at::Tensor& output, const at::Tensor& input);
  Step reduce_scatter_step(const at::Tensor& output, const at::Tensor& input,
                           const c10d::ReduceOp& op);
  Step pairs_step(const Tensors& outputs, const Tensors& inputs);
  Work receive(Tensors& tensors, int from, int tag, c10d::OpType type, const char* title);
  Work reduce_all(const Tensors& tensors, const c10d::AllreduceOptions& options, c10d::OpType type);
  void check_rank(std::int64_t rank, const char* what) const;
  void check_tag(int tag) const;

  std::shared_ptr<Communicator> communicator_;
  c10::intrusive_ptr<MpiOptions> options_;
  std::atomic<std::uint64_t> sequence_{0};
};

}  // namespace torchbridge::mpi
