// A fully connected layer that computes as Python's torch.nn.Linear does.
#pragma once

#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace torchbridge::train {

// torch::nn::Linear with the same parameters and the same initial values, but at::linear as its forward pass, which is
// Python's. C++'s own is addmm for two dimensions and, for more, a matmul and an addition: under autocast to bf16 the
// results differ in their last bits.
class LinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  at::Tensor forward(const at::Tensor& input) { return at::linear(input, weight, bias); }
};
TORCH_MODULE(Linear);

}  // namespace torchbridge::train
