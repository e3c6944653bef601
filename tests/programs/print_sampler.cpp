// Prints what our sampler gives for the cases on stdin, in the format of
// tests/reference/sampler_reference.py.
#include <iostream>
#include <sstream>
#include <string>

#include "trainer_template/runtime/data/epoch_order.h"

using namespace torchbridge::train;

namespace {

void print(const SamplerOptions& options, std::int64_t epoch) {
  std::cout << "{\"N\": " << options.size << ", \"world\": " << options.world_size
            << ", \"rank\": " << options.rank << ", \"epoch\": " << epoch
            << ", \"seed\": " << options.seed
            << ", \"shuffle\": " << (options.order == Order::kShuffled ? "true" : "false")
            << ", \"drop_last\": " << (options.drop_last ? "true" : "false") << ", \"indices\": [";
  const char* separator = "";
  for (std::int64_t index :
       rank_shard(options, EpochOrder(options, epoch), 0, 0, samples_per_rank(options))) {
    std::cout << separator << index;
    separator = ", ";
  }
  std::cout << "]}\n";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    SamplerOptions options;
    std::string rank;
    std::int64_t epoch = 0;
    bool shuffle = true;
    if (!(words >> options.size >> options.world_size >> rank >> epoch >> options.seed >> shuffle >>
          options.drop_last)) {
      continue;
    }
    if (!shuffle) options.order = Order::kSequential;
    const bool every_rank = rank == "*";
    options.rank = every_rank ? 0 : std::stoi(rank);
    const int end = every_rank ? options.world_size : options.rank + 1;
    for (; options.rank < end; ++options.rank) print(options, epoch);
  }
}
