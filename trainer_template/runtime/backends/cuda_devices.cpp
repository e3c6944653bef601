#include "trainer_template/runtime/backends/cuda_devices.h"

#include <dlfcn.h>

#include <cstdlib>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

// The driver's own interface (cuda.h): CUresult is an int, 0 is success, 100 is "no device".
constexpr int kNoDevice = 100;
constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // of CUdevice_attribute

template <class Function>
Function* look_up(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// As nvidia-smi writes it: 8, 4, 4, 4 and 12 digits.
std::string uuid_text(const unsigned char (&bytes)[16]) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    for (const int shift : {4, 0}) text += "0123456789abcdef"[bytes[i] >> shift & 15];
  }
  return text;
}

std::string counted(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " GPU is" : " GPUs are");
}

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices devices;
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string shown = variable ? formatted("CUDA_VISIBLE_DEVICES='{}'", printable(variable))
                                     : "CUDA_VISIBLE_DEVICES is not set";
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    devices.detail = formatted("this host has no NVIDIA driver, libcuda.so.1; {}", shown);
    return devices;
  }
  auto* const init = look_up<int(unsigned)>(driver, "cuInit");
  auto* const get_count = look_up<int(int*)>(driver, "cuDeviceGetCount");
  auto* const get_name = look_up<int(char*, int, int)>(driver, "cuDeviceGetName");
  auto* const get_attribute = look_up<int(int*, int, int)>(driver, "cuDeviceGetAttribute");
  auto* const get_uuid = look_up<int(unsigned char*, int)>(driver, "cuDeviceGetUuid");
  auto* const get_bus_id = look_up<int(char*, int, int)>(driver, "cuDeviceGetPCIBusId");
  int count = 0;
  int code = init && get_count && get_name ? init(0) : -1;
  if (code == 0) code = get_count(&count);
  devices.detail = code == 0 || code == kNoDevice
                       ? shown
                       : formatted("the NVIDIA driver returns error {}; {}", code, shown);
  for (int i = 0; i < count; ++i) {
    char name[256] = "";
    get_name(name, sizeof name, i);
    CudaGpu& gpu = devices.gpus.emplace_back(CudaGpu{.name = name});
    Capability found;
    const bool is_known = get_attribute && get_attribute(&found.major, kCapabilityMajor, i) == 0 &&
                          get_attribute(&found.minor, kCapabilityMinor, i) == 0;
    if (is_known) gpu.capability = found;
    char bus_id[32] = "";
    if (get_bus_id && get_bus_id(bus_id, sizeof bus_id, i) == 0) gpu.bus_id = bus_id;
    unsigned char uuid[16] = {};
    if (get_uuid && get_uuid(uuid, i) == 0) gpu.uuid = uuid_text(uuid);
  }
  return devices;  // the driver stays loaded: CUDA cannot be unloaded
}

std::string text_of(const CudaDevices& devices) {
  if (devices.gpus.empty()) return formatted("no GPU is visible ({})", devices.detail);
  std::string names;
  for (std::size_t i = 0; i < devices.gpus.size(); ++i) {
    const bool as_before = i > 0 && devices.gpus[i].name == devices.gpus[i - 1].name;
    if (!as_before) names += printable(devices.gpus[i].name) + ", ";
  }
  return formatted("{} visible ({}{})", counted(devices.gpus.size()), names, devices.detail);
}

Result<int> gpu_of(const Layout& layout, const CudaDevices& devices) {
  if (devices.gpus.empty()) return Error{text_of(devices)};
  if (devices.gpus.size() == 1) return 0;
  if (layout.local_rank < std::ssize(devices.gpus)) return layout.local_rank;
  return Error{
      formatted("LOCAL_RANK={}, but only {}: start no more ranks a node than there are GPUs",
                layout.local_rank, text_of(devices))};
}

Result<int> gpu_at(int index, const CudaDevices& devices) {
  if (index < std::ssize(devices.gpus)) return index;
  return Error{formatted("device cuda:{}: {}", index, text_of(devices))};
}

}  // namespace torchbridge::train
