// A function of a library that was opened by name.
#pragma once

#include <dlfcn.h>

namespace torchbridge {

// Sets `function` to the one of that name in a library of dlopen(). False where the library has
// none; dlerror() then says so.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace torchbridge
