#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>

#include <torchbridge/backend.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/gloo_backend.h"

namespace torchbridge::train {
namespace {

std::mutex mutex;  // of the table: flight records are asked for by any thread

std::map<std::string, BackendEntry>& table() {
  static std::map<std::string, BackendEntry> entries = {{"gloo", {{"cpu", "cuda"}, make_gloo, {}}}};
  return entries;
}

// RTLD_GLOBAL because MPI's and NCCL's own plugins look for symbols of the libraries that these
// load.
void* open_library(const std::string& file) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& path : {folder / file, folder.parent_path() / "lib" / file}) {
    if (std::filesystem::exists(path, ignored)) return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  return dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

BackendEntry load(const std::string& name) {
  const std::string file = "libtorchbridge_" + name + ".so";
  const auto error = [&](const std::string& why) {
    return TrainError(formatted("backend '{}': {}", name, why));
  };
  void* library = open_library(file);
  if (library == nullptr) {
    const char* why = dlerror();
    const std::string hint =
        name == "mpi" ? "; it is built where CMake finds an MPI"
        : name == "nccl"
            ? "; it is built with a CUDA build of libtorch and NCCL's headers"
            : "; available are gloo, nccl, mpi and the backends that the program registers";
    throw error(std::string(why ? why : "cannot be opened") + hint);
  }
  auto* fill = reinterpret_cast<FillBackendEntry*>(dlsym(library, kFillBackendEntry));
  if (fill == nullptr)
    throw error(formatted("{} has no {}: it is of another version of torchbridge", file,
                          kFillBackendEntry));
  BackendEntry entry;
  fill(entry);
  return entry;
}

}  // namespace

void register_backend(const std::string& name, BackendEntry entry) {
  const std::scoped_lock lock(mutex);
  table()[name] = std::move(entry);
}

const BackendEntry& find_backend(const std::string& name) {
  const std::scoped_lock lock(mutex);
  auto found = table().find(name);
  if (found == table().end()) found = table().emplace(name, load(name)).first;
  return found->second;
}

std::map<std::string, std::string> own_flight_records() {
  const std::scoped_lock lock(mutex);
  std::map<std::string, std::string> records;
  for (const auto& [name, entry] : table()) {
    if (entry.flight_record) records.emplace(name, entry.flight_record());
  }
  return records;
}

}  // namespace torchbridge::train
