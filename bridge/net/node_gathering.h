// Ranks of one node tell each other a word each.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torchbridge/core/result.h>

namespace torchbridge {

// What the first rank does with the words of the others.
struct Beyond {
  // Makes of the values of this node what all are answered; its error is everybody's.
  std::function<Result<std::vector<std::string>>(std::vector<std::string>)> answer;
  // Called again and again while ranks are missing, whose values are empty; may be empty.
  std::function<void(const std::vector<std::string>&)> waiting;
};

// Collective over local ranks 0..size-1: each gives `value` (any bytes, not empty, at most 32 KiB) and gets the values of all, or
// what rank 0's `beyond` makes of them, which all give or none. Rank 0 answers the others on an abstract unix socket, a name that
// `key` makes: the same for all ranks and of no other job. No launcher takes part and no file is made; only processes of this
// user are listened to. A second gathering with the same key may follow at once. Where ranks never came the error says how long
// was waited, and which they are.
Result<std::vector<std::string>> gather_on_node(const std::string& key, int rank, int size, const std::string& value,
                                                std::chrono::milliseconds timeout, const Beyond& beyond = {});

}  // namespace torchbridge
