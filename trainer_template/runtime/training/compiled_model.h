// A model that torch.export and AOTInductor have compiled, run with the weights of this program's model.
#pragma once

#include <filesystem>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace torchbridge::train {

// A package of torch._inductor.aoti_compile_and_package (.pt2) holds machine code, which runs with this process's
// rights: use your own only.
class CompiledModel {
 public:
  // The package's parameters and buffers become those of `model`, by name; memory is shared, so that the weights are
  // current as long as they are changed in place. Throws TrainError, which names the file: one that is no package, or
  // that has other names.
  CompiledModel(const std::filesystem::path& file, const ModelTensors& model, c10::Device device);
  ~CompiledModel();
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;

  // Forward without gradients. The shapes that may come are those that were exported.
  at::Tensor forward(const at::Tensor& inputs);

 private:
  std::filesystem::path file_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace torchbridge::train
