#include "trainer_template/runtime/checkpoint/generators.h"

#include <mutex>

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>

namespace torchbridge::train {
namespace {

// Handles to the generators of the process. ATen returns those of a GPU, so nothing of CUDA is
// linked here.
std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all = {
      {"cpu_generator", at::globalContext().defaultGenerator(c10::kCPU)}};
  if (!device.is_cpu()) {
    all.emplace_back(c10::DeviceTypeName(device.type(), /*lower_case=*/true) + "_generator",
                     at::globalContext().defaultGenerator(device));
  }
  return all;
}

}  // namespace

NamedTensors generator_states(c10::Device device) {
  NamedTensors states;
  for (auto& [name, generator] : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    states.emplace_back(name, generator.get_state());
  }
  return states;
}

void restore_generators(const NamedTensors& states, c10::Device device) {
  for (auto& [name, generator] : generators(device)) {
    for (const auto& [given, state] : states) {
      if (given != name) continue;
      const std::scoped_lock lock(generator.mutex());
      generator.set_state(state);
    }
  }
}

}  // namespace torchbridge::train
