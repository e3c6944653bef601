// Writes TORCHELASTIC_ERROR_FILE, in which the agent or launcher of this process finds the reason
// of its failure.
#pragma once

#include <string>
#include <string_view>

#include "bridge/base/result.h"

namespace torchbridge {

// Writes the file as torch's ErrorHandler does, with the present time. `message` is "TYPE: TEXT",
// or a text alone; `callstack` is what torchrun prints of the error, and is the message where it is
// empty. An existing file is overwritten. Nothing waits for a reader where the path is a pipe's.
// The error names the file.
Status write_error_file(const std::string& path, std::string_view message,
                        std::string_view callstack = {});

// Writes an error file whose JSON is made already. The error names the file.
Status write_error_json(const std::string& path, std::string_view json);

// For signal handlers: writes the bytes, or nothing at all. Returns 0 or an errno.
int write_file_bytes(const char* path, std::string_view bytes);

// For signal handlers: one line on stderr.
void print_unwritten(const char* path, int error);

}  // namespace torchbridge
