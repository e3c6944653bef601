// The file of --json-summary.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/supervision/attempt.h"

namespace torchbridge {

// By who writes it at the end, as soon as that is known: an earlier run's is not to be taken for
// this one's. Where nodes share the file, one that comes back after the end of the run must not
// empty it. Nothing is done without a path, and to a pipe or a terminal.
Status empty_summary(const std::string& path);

// Whether it could be written. A reader of a pipe or a terminal is waited for, until
// context.output_until.
bool write_summary(AgentContext& context, const std::string& text);

}  // namespace torchbridge
