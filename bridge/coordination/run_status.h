// Asks the coordinator of a run for its state.
#pragma once

#include <chrono>
#include <string>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// The JSON of Coordinator::status_json. Waits at most `timeout` for the answer; an error where nothing listens there,
// and where what listens is no coordinator.
Result<std::string> ask_run_status(const Endpoint& coordinator, std::chrono::milliseconds timeout);

// The same as a table: the run on the first line, a node on each further one, and the last failure.
std::string run_status_table(const std::string& json);

}  // namespace torchbridge
