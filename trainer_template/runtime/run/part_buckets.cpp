#include "trainer_template/runtime/run/part_buckets.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace torchbridge::train {
namespace {

// The number of each parameter, by name.
std::map<std::string, std::size_t> numbers_of(const ModelTensors& model) {
  std::map<std::string, std::size_t> numbers;
  for (const auto& [name, parameter] : model.parameters) {
    if (parameter.requires_grad()) numbers.emplace(name, numbers.size());
  }
  return numbers;
}

// For each number in `from` that in `to`, of the same parameter.
std::map<std::size_t, std::size_t> numbers_from(const ModelTensors& from, const ModelTensors& to) {
  const std::map<std::string, std::size_t> targets = numbers_of(to);
  std::map<std::size_t, std::size_t> numbers;
  for (const auto& [name, number] : numbers_of(from)) {
    if (const auto target = targets.find(name); target != targets.end())
      numbers.emplace(number, target->second);
  }
  return numbers;
}

}  // namespace

BucketLayout buckets_of(const std::vector<std::reference_wrapper<DistributedDataParallel>>& ddps,
                        const ModelTensors& model) {
  if (ddps.size() == 1) return ddps.front().get().buckets();
  BucketLayout whole;
  for (DistributedDataParallel& ddp : ddps) {
    const auto numbers = numbers_from(ddp.model(), model);
    for (std::vector<std::size_t> bucket : ddp.buckets()) {
      for (std::size_t& number : bucket) number = numbers.at(number);
      whole.push_back(std::move(bucket));
    }
  }
  return whole;
}

BucketLayout buckets_of_part(const BucketLayout& whole, const ModelTensors& model,
                             const ModelTensors& part) {
  const auto numbers = numbers_from(model, part);
  BucketLayout buckets;
  std::size_t found = 0;
  for (const std::vector<std::size_t>& bucket : whole) {
    std::vector<std::size_t> of_part;
    for (const std::size_t number : bucket) {
      if (const auto own = numbers.find(number); own != numbers.end())
        of_part.push_back(own->second);
    }
    if (of_part.empty()) continue;
    if (of_part.size() != bucket.size()) return {};
    found += bucket.size();
    buckets.push_back(std::move(of_part));
  }
  return found == numbers_of(part).size() ? buckets : BucketLayout();
}

}  // namespace torchbridge::train
