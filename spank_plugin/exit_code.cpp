#include "spank_plugin/exit_code.h"

#include <dlfcn.h>

#include <cstdlib>

namespace torchbridge {
namespace {

// REQUIRES: glibc, where exit() in a handler goes on with the handlers that are left.
void replace_zero(int status, void*) {
  if (status == EXIT_SUCCESS) exit(EXIT_FAILURE);
}

// Slurm unloads the plugin before srun ends.
bool keep_loaded() {
  Dl_info plugin;
  return dladdr(reinterpret_cast<const void*>(&replace_zero), &plugin) != 0 &&
         dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

}  // namespace

void fail_if_srun_ends_with_zero() {
  if (keep_loaded()) on_exit(replace_zero, nullptr);
}

}  // namespace torchbridge
