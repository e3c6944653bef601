// Prints its rank and the number of ranks.
#include <unistd.h>

#include <iostream>

#include <torchbridge/launch.h>
#include <torchbridge/record.h>

namespace {

int print_rank() {
  const auto launch = torchbridge::resolve_launch(torchbridge::EnvMap::from(environ));
  if (!launch) return std::cerr << launch.error().message << "\n", 1;
  std::cout << launch->env.layout.rank << " of " << launch->env.layout.world_size << "\n";
  return 0;
}

}  // namespace

int main() { return torchbridge::record(print_rank); }
