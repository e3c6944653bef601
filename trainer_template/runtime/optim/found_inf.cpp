#include "trainer_template/runtime/optim/found_inf.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "trainer_template/runtime/tensors/tensor_lists.h"

namespace torchbridge::train {

at::Tensor scale_and_find_inf(const std::vector<at::Tensor>& parameters, const at::Tensor& factor,
                              c10::Device device) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (gradient.defined()) all.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  }
  at::Tensor found_inf;  // most models have one list: each further operation is a kernel of the GPU
  for (const auto& gradients : by_device_and_type(std::move(all))) {
    at::Tensor found = at::zeros({}, gradients[0].options().dtype(at::kFloat));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, factor.to(found.device()));
    found_inf = found_inf.defined() ? found_inf.add_(found.to(device)) : found.to(device);
  }
  return found_inf.defined() ? found_inf : at::zeros({}, at::device(device).dtype(at::kFloat));
}

}  // namespace torchbridge::train
