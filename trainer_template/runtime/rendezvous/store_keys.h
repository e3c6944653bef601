// Keys by which ranks exchange small texts through the store, and waiting for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchbridge/errors.h>

namespace torchbridge::train {

// "joined/3": the key that rank 3 sets.
std::string key(const char* what, int rank);

void put(c10d::Store& store, const std::string& name, const std::string& text);
// Waits for the key, at most the store's timeout.
std::string get(c10d::Store& store, const std::string& name);

// For a value that no rank writes: whoever reaches the store can change it.
TrainError changed_key(const std::string& name, const std::string& value, const char* expected);
// For one that rank 0 has not written; it may hold a secret.
TrainError changed_key(const std::string& name);

std::vector<int> all_ranks(int world_size);

// The ranks that have not set their key `what` within `timeout`. Returns at once when all have.
std::vector<int> missing_after(c10d::Store& store, const char* what, std::vector<int> ranks,
                               std::chrono::milliseconds timeout);

// "rank 3", or "ranks 1,3,4", for a message.
std::string list_of(const std::vector<int>& ranks);

}  // namespace torchbridge::train
