// SyncBatchNorm: batch normalisation with the mean and variance of all ranks' batches together.
#pragma once

#include <iosfwd>

#include <torch/nn/cloneable.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

namespace torchbridge::train {

class ProcessGroup;

// Python's torch.nn.SyncBatchNorm: input (N, C, ...), normalised for each channel. On a GPU by the
// same operations; on the CPU, which Python's rejects, by the same formulas. Batches of the ranks
// may differ in size, and be empty. Running statistics are the same on all ranks. Without a group,
// in eval mode, and with one rank it computes as torch::nn::BatchNorm does, so a model may declare
// it instead.
//
// forward() in training and its backward are collectives: not to be used within a NoSync of only
// some ranks, nor within join().
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options,
                             ProcessGroup* process_group = nullptr);
  // Takes over the parameters and buffers of a BatchNorm1d, 2d or 3d.
  template <class BatchNorm>
  SyncBatchNormImpl(const BatchNorm& from, ProcessGroup* process_group)
      : SyncBatchNormImpl(from.options, process_group, from.weight, from.bias, from.running_mean,
                          from.running_var, from.num_batches_tracked) {
    train(from.is_training());
  }

  at::Tensor forward(const at::Tensor& input);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  torch::nn::BatchNormOptions options;
  at::Tensor weight, bias;  // undefined unless options.affine()
  // Undefined unless options.track_running_stats().
  at::Tensor running_mean, running_var, num_batches_tracked;
  ProcessGroup* group = nullptr;  // not owned; must outlive the module

 private:
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, ProcessGroup* process_group,
                    at::Tensor weight, at::Tensor bias, at::Tensor running_mean,
                    at::Tensor running_var, at::Tensor num_batches_tracked);
  void register_tensors();
  double average_factor();
};
TORCH_MODULE(SyncBatchNorm);

// Python's convert_sync_batchnorm: gives `group` to each SyncBatchNorm of the model that has none,
// and replaces each BatchNorm1d, 2d and 3d in a torch::nn::Sequential by one with the same tensors
// and the same name. Returns the number of SyncBatchNorms. A BatchNorm elsewhere cannot be
// replaced, because C++ code holds it by its type: then TrainError names it, and nothing is
// changed. Call it before DistributedDataParallel.
int convert_sync_batch_norm(torch::nn::Module& model, ProcessGroup& group);

}  // namespace torchbridge::train
