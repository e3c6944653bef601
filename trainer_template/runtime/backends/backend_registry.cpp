#include "trainer_template/runtime/backends/backend_registry.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>

#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/backends/gloo_backend.h"

namespace torchbridge::train {
namespace {

std::map<std::string, BackendEntry>& table() {
  static std::map<std::string, BackendEntry> entries = {{"gloo", {{"cpu", "cuda"}, make_gloo, {}}}};
  return entries;
}

// MPI's and NCCL's own plugins look for symbols of the libraries that these bring: hence global.
void* open_library(const std::string& file) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& place : {folder / file, folder.parent_path() / "lib" / file}) {
    if (std::filesystem::exists(place, ignored)) return dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  return dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

BackendEntry load(const std::string& name) {
  const std::string file = "libtorchbridge_" + name + ".so";
  const auto refuse = [&](const std::string& why) { return TrainError("backend '" + name + "': " + why); };
  void* library = open_library(file);
  if (library == nullptr) {
    const char* why = dlerror();
    const std::string hint = name == "mpi"    ? "; it is built where CMake finds an MPI"
                             : name == "nccl" ? "; it is built where libtorch is one for CUDA, with NCCL's headers"
                                              : "; there are gloo, nccl, mpi, and what the program registers";
    throw refuse(std::string(why ? why : "cannot be opened") + hint);
  }
  auto* fill = reinterpret_cast<FillBackendEntry*>(dlsym(library, kFillBackendEntry));
  if (fill == nullptr) throw refuse(file + " is of another version, it has no " + kFillBackendEntry);
  BackendEntry entry;
  fill(entry);
  return entry;
}

}  // namespace

void register_backend(const std::string& name, BackendEntry entry) { table()[name] = std::move(entry); }

const BackendEntry& find_backend(const std::string& name) {
  auto found = table().find(name);
  if (found == table().end()) found = table().emplace(name, load(name)).first;
  return found->second;
}

}  // namespace torchbridge::train
