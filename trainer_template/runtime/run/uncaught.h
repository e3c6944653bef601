// The line of an exception that no handler catches.
#pragma once

namespace torchbridge::train {

class ProcessGroup;

// From now on std::terminate prints the exception as this rank's error, in one line, and ends the
// process by SIGABRT. It is called for an exception that leaves a thread, and for one of a
// destructor. Call it before record_failures(), which then still writes the error file.
void print_uncaught(int rank);

// After an error of a kernel the destructors of the GPU's memory throw it, and those of c10d's
// groups one of their own, also while it unwinds already. From now on the group then reports it
// (ProcessGroup::report_and_exit); null: no longer.
void report_group_errors_by(ProcessGroup* group);

// Once the failure of the job is reported, by this rank or another: such an error, as of a tensor
// that outlives the group, ends the process without a line, by ExitCode::kFailed.
void report_no_group_errors();

}  // namespace torchbridge::train
