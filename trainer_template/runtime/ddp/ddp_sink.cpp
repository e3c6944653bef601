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

// libtorch holds a node by std::shared_ptr, and from 2.13 on by c10::intrusive_ptr.
using NodePtr = std::remove_cvref_t<decltype(std::declval<at::Tensor>().grad_fn())>;

template <class Node>
auto make_node(torch::autograd::edge_list next) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<Node>(std::move(next));
  } else {
    return c10::make_intrusive<Node>(std::move(next));
  }
}

}  // namespace

std::vector<at::Tensor> through_sink(std::vector<at::Tensor> outputs,
                                     std::function<void()> on_backward) {
  torch::autograd::edge_list next;
  for (const at::Tensor& output : outputs) {
    if (output.grad_fn()) next.push_back(torch::autograd::impl::gradient_edge(output));
  }
  if (next.empty()) return outputs;
  const auto sink = make_node<Sink>(std::move(next));
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
