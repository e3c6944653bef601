// Preloaded: from its call number FAIL_AT on, the plugin gets no memory; everybody else does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern void* __libc_malloc(size_t size);

static int calls, fail_at;

__attribute__((constructor)) static void read_fail_at(void) {
  const char* text = getenv("FAIL_AT");
  fail_at = text == NULL ? 0 : atoi(text);
}

void* malloc(size_t size) {
  Dl_info caller;
  if (fail_at != 0 && dladdr(__builtin_return_address(0), &caller) != 0 && strstr(caller.dli_fname, "torch_env") != NULL &&
      ++calls >= fail_at) {
    return NULL;
  }
  return __libc_malloc(size);
}
