// Reads this rank's part of the optimizer state from a checkpoint's files, written by any number of
// ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>

namespace torchbridge::train {

// Takes the files in their order, one after the other, so that only one of them is in memory.
class StatePieces {
 public:
  // `wanted`: the elements to keep of each parameter, Optimizer::ranges().
  explicit StatePieces(std::map<std::string, ElementRange> wanted) : wanted_(std::move(wanted)) {}

  // The flat pieces of a tensor, in the order of the files, make the whole tensor. Tensors without
  // dimensions (the number of steps) are the same in all files. A tensor of no known parameter is
  // kept unchanged: load_state() then names it in its error.
  void add(const NamedTensors& file);

  // The state for Optimizer::load_state. Throws TrainError, which names a tensor whose pieces do
  // not have as many elements as its parameter.
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
