// What is reported of a worker that did not end with 0: from its process, its error file, which is
// also passed on to the launcher that started this agent, and its log.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bridge/base/result.h"
#include "bridge/run_values/run_report.h"
#include "bridge/supervision/worker_process.h"

namespace torchbridge {

// Reads TORCHELASTIC_ERROR_FILE of a worker that has ended. Nothing where the file is missing,
// empty, or older than `not_before`, as one of an earlier attempt is; and where it is no regular
// file: links are not followed, and nothing waits for the writer of a pipe. The kernel's clock for
// files ticks every 10 ms at most: a file may be that much older. The message is an object, as
// torch writes it, or a text, as older programs do. Content of another form is the message, as it
// is. Of a file of more than 1 MiB only that much is read.
std::optional<ErrorRecord> read_error_record(const std::string& path,
                                             std::chrono::system_clock::time_point not_before);

// Writes the root cause's file `from` to `to`, TORCHELASTIC_ERROR_FILE of this process, with the
// exit code of its worker (minus the number of its signal) as "errorCode", unless that is 0: as
// torchrun does. What is not of torch's form becomes a message of it. An existing file is
// overwritten. An error names the file.
Status copy_error_record(const std::string& from, const std::string& to, int exit_code);

// Reads the worker's error file, and leaves log_end empty. `not_before`: the start of the attempt.
WorkerReport report_of(const WorkerProcess& worker, const std::string& host,
                       std::chrono::system_clock::time_point not_before);

// For WorkerReport::log_end; once all output of the worker is in the log.
std::string read_log_end(const WorkerReport& worker);

}  // namespace torchbridge
