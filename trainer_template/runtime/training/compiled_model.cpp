#include "trainer_template/runtime/training/compiled_model.h"

#include <dlfcn.h>

#include <string>
#include <unordered_map>

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torchbridge/errors.h>
#include <torchbridge/process_group.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

// A package's library needs libtorch.so by its bare name, and this program does not link it. Once
// it is loaded from the folder of libtorch_cpu.so, the loader resolves the name.
void load_libtorch() {
  Dl_info here{};
  if (!dladdr(reinterpret_cast<void*>(&at::globalContext), &here)) return;
  dlopen((std::filesystem::path(here.dli_fname).parent_path() / "libtorch.so").c_str(), RTLD_NOW);
}

}  // namespace

CompiledModel::CompiledModel(const std::filesystem::path& file, const ModelTensors& model,
                             c10::Device device)
    : file_(file) {
  const auto fail = [&](const std::string& reason) {
    throw TrainError(formatted("compiled model '{}': {}", file_.string(), reason));
  };
  if (!std::filesystem::is_regular_file(file_)) fail("no such file");
  load_libtorch();
  try {
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        file_.string(), "model", false, 1, device.is_cpu() ? -1 : device.index());
  } catch (const std::exception& error) {
    fail("not a package of torch._inductor.aoti_compile_and_package: " + one_line(error));
  }
  std::unordered_map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : model.all()) tensors.emplace(name, tensor.detach());
  std::unordered_map<std::string, at::Tensor> wanted;
  for (const std::string& name : loader_->get_constant_fqns()) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      fail(formatted("it has a tensor '{}', which this model does not have", name));
    wanted.insert(*found);
  }
  loader_->load_constants(wanted, /*use_inactive=*/false, /*check_full_update=*/true,
                          /*user_managed=*/true);
}

CompiledModel::~CompiledModel() = default;

at::Tensor CompiledModel::forward(const at::Tensor& inputs) {
  try {
    return loader_->run({inputs}).at(0);
  } catch (const std::exception& error) {
    throw TrainError(formatted("compiled model '{}', inputs of shape {}: {}", file_.string(),
                               c10::str(inputs.sizes()), one_line(error)));
  }
}

}  // namespace torchbridge::train
