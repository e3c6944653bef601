#include "trainer_template/runtime/ddp/ddp_sink.h"

#include <ATen/ops/clone.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace torchbridge::train {
namespace {

struct Sink : torch::autograd::Node {
  using Node::Node;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (on_backward) on_backward();
    return std::move(gradients);
  }
  std::string name() const override { return "DdpSink"; }
  std::function<void()> on_backward;
};

}  // namespace

std::vector<at::Tensor> through_sink(std::vector<at::Tensor> outputs, std::function<void()> on_backward) {
  torch::autograd::edge_list next;
  for (const at::Tensor& output : outputs) {
    if (output.grad_fn()) next.push_back(torch::autograd::impl::gradient_edge(output));
  }
  if (next.empty()) return outputs;
  const auto sink = std::make_shared<Sink>(std::move(next));
  sink->on_backward = std::move(on_backward);
  for (at::Tensor& output : outputs) {
    if (!output.grad_fn()) continue;
    // A copy, so that the caller may change it in place.
    const at::NoGradGuard no_grad;
    at::Tensor copy = output.clone();
    torch::autograd::set_history(copy, sink);
    output = std::move(copy);
  }
  return outputs;
}

}  // namespace torchbridge::train
