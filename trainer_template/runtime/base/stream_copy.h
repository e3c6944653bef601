// A copy of large memory next to a computation that needs the processor's cache and the memory's bandwidth.
#pragma once

#include <string_view>

namespace torchbridge::train {

// Like memcpy, but with non-temporal stores: they bypass the cache and do not read the target first. For bytes that are
// not read again soon. The ranges must not overlap. Any thread; the copy is visible to other threads like one of
// memcpy.
void stream_copy(std::string_view from, char* into);

}  // namespace torchbridge::train
