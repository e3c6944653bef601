// Reads the error file of a worker, and passes it on to the launcher that started this agent.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "bridge/base/result.h"

namespace torchbridge {

// Why a worker failed, by its own error file. The texts may hold any bytes.
struct ErrorRecord {
  std::string message;                         // "TYPE: TEXT"
  std::string callstack;                       // the message where the worker wrote none
  std::chrono::system_clock::time_point time;  // when the file was last written
};

// Reads TORCHELASTIC_ERROR_FILE of a worker that has ended. Nothing where the file is missing, empty, or older than
// `not_before`, as one of an earlier attempt is; and where it is no regular file: links are not followed, and nothing
// waits for the writer of a pipe. The kernel's clock for files ticks every 10 ms at most: a file may be that much
// older. The message is an object, as torch writes it, or a text, as older programs do. Content of another form is the
// message, as it is. Of a file of more than 1 MiB only that much is read.
std::optional<ErrorRecord> read_error_record(const std::string& path, std::chrono::system_clock::time_point not_before);

// Writes the root cause's file `from` to `to`, TORCHELASTIC_ERROR_FILE of this process, with the exit code of its
// worker (minus the number of its signal) as "errorCode", unless that is 0: as torchrun does. What is not of torch's
// form becomes a message of it. An existing file is overwritten. An error names the file.
Status copy_error_record(const std::string& from, const std::string& to, int exit_code);

}  // namespace torchbridge
