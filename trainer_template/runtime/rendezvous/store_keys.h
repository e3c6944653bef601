// What ranks tell each other through the store: keys that a rank sets, and waiting for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace torchbridge::train {

// "joined/3": what rank 3 says about itself.
std::string key(const char* what, int rank);

void put(c10d::Store& store, const std::string& name, const std::string& text);
// Waits for the key as long as the store's timeout says.
std::string get(c10d::Store& store, const std::string& name);

std::vector<int> all_ranks(int world_size);

// Those of the ranks that have not set their key `what`, as soon as all have or when the time is over.
std::vector<int> missing_after(c10d::Store& store, const char* what, std::vector<int> ranks,
                               std::chrono::milliseconds patience);

// "rank 3", or "ranks 1,3,4", for a message.
std::string list_of(const std::vector<int>& ranks);

}  // namespace torchbridge::train
