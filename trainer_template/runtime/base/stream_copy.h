// A copy of much memory beside a computation that needs the processor's cache and the memory's bandwidth.
#pragma once

#include <string_view>

namespace torchbridge::train {

// As memcpy, but what is written goes past the cache, line by line, without being read first. For what nobody looks at
// soon. Ranges must not overlap. Any thread; other threads see the copy as they see one of memcpy.
void stream_copy(std::string_view from, char* into);

}  // namespace torchbridge::train
