// A model compiled by torch.export and AOTInductor, run with the weights of this program's model.
#pragma once

#include <filesystem>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torchbridge/model_tensors.h>

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace torchbridge::train {

// A package of torch._inductor.aoti_compile_and_package (.pt2) contains machine code, which runs
// with this process's permissions: use only packages that you trust.
class CompiledModel {
 public:
  // The package uses the parameters and buffers of `model`, by name and in the same memory: it sees
  // changes that are made in place. Throws TrainError, which names the file, if it is not a package
  // or has other names.
  CompiledModel(const std::filesystem::path& file, const ModelTensors& model, c10::Device device);
  ~CompiledModel();
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;

  // Forward without gradients. `inputs` must have a shape that was exported.
  at::Tensor forward(const at::Tensor& inputs);

 private:
  std::filesystem::path file_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace torchbridge::train
