// Optimizer state from a checkpoint's files, whatever number of ranks wrote them, cut to what this rank keeps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/optim/optimizer.h"

namespace torchbridge::train {

// Give it the files in their order, one after the other: no more than one need be in memory.
class StatePieces {
 public:
  // What to keep, by parameter: Optimizer::ranges().
  explicit StatePieces(std::map<std::string, ElementRange> wanted) : wanted_(std::move(wanted)) {}

  // The pieces of a tensor, flat, are those of the files in their order: together they are the whole. Tensors without
  // dimensions (the number of steps) are the same in all. What is not any parameter's is kept as it is, for
  // load_state() to name.
  void add(const NamedTensors& file);

  // For Optimizer::load_state. Throws TrainError, which names a tensor whose pieces are not as many elements as its
  // parameter.
  NamedTensors take();

 private:
  struct Collected {
    at::Tensor tensor;
    std::int64_t seen = 0, total = 0;  // elements
  };
  std::map<std::string, ElementRange> wanted_;
  std::map<std::string, Collected> collected_;
  NamedTensors others_;
};

}  // namespace torchbridge::train
