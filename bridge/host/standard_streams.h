// The descriptors 0, 1 and 2 of this process.
#pragma once

namespace torchbridge {

// Where the caller has closed one (`>&-`), /dev/null takes its place, also for what this process
// starts: else the next file, socket or lock would be it, and whatever prints would write to that.
// False, with errno, where /dev/null does not open.
bool open_standard_streams();

}  // namespace torchbridge
