#include "trainer_template/runtime/rendezvous/reverse_lookups.h"

#include <dlfcn.h>
#include <link.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include <ATen/Parallel.h>

namespace {

using GetNameInfo = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);

std::atomic<bool> is_numeric_only{false};

// The address range of a loaded library. Found once: dladdr would search all of libtorch's symbols,
// which takes a millisecond a call.
struct Library {
  std::uintptr_t inside = 0, begin = 0, end = 0;

  explicit Library(const void* address) : inside(reinterpret_cast<std::uintptr_t>(address)) {
    dl_iterate_phdr(look, this);
  }
  bool holds(const void* address) const {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    return begin <= number && number < end;
  }

 private:
  static int look(dl_phdr_info* loaded, std::size_t, void* asked) {
    auto& library = *static_cast<Library*>(asked);
    std::uintptr_t begin = ~std::uintptr_t{0}, end = 0;
    for (int i = 0; i < loaded->dlpi_phnum; ++i) {
      const auto& part = loaded->dlpi_phdr[i];
      if (part.p_type != PT_LOAD) continue;
      begin = std::min(begin, loaded->dlpi_addr + part.p_vaddr);
      end = std::max(end, loaded->dlpi_addr + part.p_vaddr + part.p_memsz);
    }
    if (library.inside < begin || library.inside >= end) return 0;
    library.begin = begin;
    library.end = end;
    return 1;
  }
};

}  // namespace

// Replaces libc's function for all libraries of the program.
extern "C" int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size,
                           char* service, socklen_t service_size, int flags) {
  static const auto original = reinterpret_cast<GetNameInfo>(dlsym(RTLD_NEXT, "getnameinfo"));
  static const Library libtorch(reinterpret_cast<const void*>(&at::set_num_threads));
  if (is_numeric_only && libtorch.holds(__builtin_return_address(0))) flags |= NI_NUMERICHOST;
  return original(address, size, host, host_size, service, service_size, flags);
}

void torchbridge::train::no_reverse_lookups() { is_numeric_only = true; }
