#include "trainer_template/runtime/backends/cuda.h"

#include <dlfcn.h>

#include <filesystem>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torchbridge/errors.h>

#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::train {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";

// The folder of the libtorch_cpu.so of this process.
std::filesystem::path libtorch_folder() {
  Dl_info found{};
  dladdr(reinterpret_cast<const void*>(&at::show_config), &found);
  return found.dli_fname ? std::filesystem::path(found.dli_fname).parent_path()
                         : std::filesystem::path();
}

}  // namespace

bool has_gpu() {
  std::error_code ignored;
  return std::filesystem::exists(libtorch_folder() / kLibrary, ignored) &&
         !cuda_devices().gpus.empty();
}

void open_cuda() {
  const auto file = libtorch_folder() / kLibrary;
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* why = dlerror();
    throw TrainError(std::string("libtorch has no CUDA: ") +
                     (why ? why : "libtorch_cuda.so cannot be opened"));
  }
}

void use_cuda(c10::Device device) {
  open_cuda();
  if (!at::hasCUDA()) {
    throw TrainError(
        "libtorch cannot use the GPU that the driver shows: the driver is older than the CUDA that "
        "libtorch was built "
        "for, or the program used CUDA before it formed the process group; --device cpu uses none");
  }
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

}  // namespace torchbridge::train
