// Prints its rank and the number of ranks.
#include <unistd.h>

#include <iostream>

#include <torchbridge/launch.h>

int main() {
  const auto launch = torchbridge::resolve_launch(torchbridge::EnvMap::from(environ));
  if (!launch) return std::cerr << launch.error().message << "\n", 1;
  std::cout << launch->env.layout.rank << " of " << launch->env.layout.world_size << "\n";
}
