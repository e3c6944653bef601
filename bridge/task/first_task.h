// What one task of a node does for all of them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torchbridge/core/layout.h>
#include <torchbridge/core/result.h>

namespace torchbridge {

// Makes a text of the words of the node's tasks, which are in the order of local ranks.
using FirstTask = std::function<Result<std::string>(const std::vector<std::string>&)>;

// Collective over the tasks of a node: the first calls `act` when all have come, and all get its text. Where it fails the first
// has the error; that of the others is reported_elsewhere. `word` is not empty, `purpose` the same for
// all and used once. An error too where tasks do not come within `timeout`, which leaves room for `act`.
Result<std::string> by_first_task(const Layout& at, const std::string& purpose, const std::string& word,
                                  std::chrono::milliseconds timeout, const FirstTask& act);

}  // namespace torchbridge
