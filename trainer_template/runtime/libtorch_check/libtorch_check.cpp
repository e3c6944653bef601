// Ends a program that finds another minor version of libtorch than it was built with. A library of
// its own, because the loader would end the program first, with the name of a symbol that one of
// the two versions lacks: each has other virtual functions in c10d's classes, to which tables of
// our classes point. The loader calls the resolver of an indirect function while it prepares this
// library, which is before it prepares the program.
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include <torch/headeronly/version.h>

// libtorch's C interface for all versions: major and minor number in the two highest bytes. None:
// libtorch is not used.
extern "C" [[gnu::weak]] std::uint64_t aoti_torch_abi_version();

extern "C" {

static void nothing() {}

// Calls only what is prepared before this library: libc, and functions of libtorch that use no
// data.
static auto torchbridge_resolve_check() {
  const std::uint64_t found = aoti_torch_abi_version ? aoti_torch_abi_version() >> 48 : 0;
  if (found != 0 && found != (TORCH_VERSION_MAJOR << 8 | TORCH_VERSION_MINOR)) {
    dprintf(STDERR_FILENO,
            "torchbridge: this program was built with libtorch %d.%d, and finds libtorch %d.%d: "
            "build it again with the "
            "latter, or let LD_LIBRARY_PATH name the folder of libtorch %d.%d\n",
            TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, static_cast<int>(found >> 8),
            static_cast<int>(found & 0xff), TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
    _exit(1);
  }
  return nothing;
}

[[gnu::ifunc("torchbridge_resolve_check")]] static void torchbridge_check();

}  // extern "C"

// A use of the function, for which the loader calls the resolver.
extern "C" [[gnu::visibility("default")]] void (*const torchbridge_checked)();
void (*const torchbridge_checked)() = torchbridge_check;
