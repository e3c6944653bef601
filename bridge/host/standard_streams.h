// The descriptors 0, 1 and 2 of this process.
#pragma once

namespace torchbridge {

// Where the caller has closed one (`>&-`), /dev/null takes its place: the next file, socket or lock
// would be it, and be written to by whatever prints. A command that exec() starts has it closed, as
// the caller had it.
void fill_standard_streams();

}  // namespace torchbridge
