// Prints the sum of rank + 1 over all ranks, after it has opened the backend that it is told.
#include <unistd.h>

#include <iostream>

#include <ATen/ops/full.h>
#include <torchbridge/backend.h>
#include <torchbridge/process_group.h>

int main(int, char** arguments) {
  try {
    if (arguments[1]) torchbridge::train::find_backend(arguments[1]);
    auto group = torchbridge::train::init_process_group(torchbridge::EnvMap::from(environ));
    const at::Tensor number = at::full({1}, group.rank() + 1.0);
    group.sum(number);
    std::cout << number.item<double>() << "\n";
  } catch (const std::exception& error) {
    return std::cerr << torchbridge::train::one_line(error) << "\n", 1;
  }
}
