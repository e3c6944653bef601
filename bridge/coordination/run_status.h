// Asks the coordinator of a run for its state.
#pragma once

#include <chrono>
#include <string>

#include "bridge/base/result.h"
#include "bridge/coordination/connection_proof.h"
#include "bridge/core/endpoint.h"

namespace torchbridge {

// The JSON of Coordinator::status_json, in ASCII without control characters. Waits at most
// `timeout` for the answer; an error where nothing listens there, where what listens is no
// coordinator, and where it has another key.
Result<std::string> ask_run_status(const Endpoint& coordinator, const RunKey& key,
                                   std::chrono::milliseconds timeout);

// The same as a table: the run on the first line, a node on each further one, and the last failure.
// Texts are shown without what is no character to show. An error for a text that
// Coordinator::status_json does not give.
Result<std::string> run_status_table(const std::string& json);

}  // namespace torchbridge
