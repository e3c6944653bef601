// The collectives of c10d as a table: how each is started on given values, and the result that is
// expected on this rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

using Tensors = std::vector<at::Tensor>;

// One case of the matrix. It determines the inputs of all ranks, so that each rank can compute
// those of the others.
struct Setting {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape = {7};
  bool strided = false;  // every second element of its memory
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM;
  int root = 0;

  std::string name() const;
  // Small whole numbers that every type holds, so that sums are exact in any order; another tensor
  // for each `number`.
  at::Tensor values(int of_rank, int number = 0) const;
  // The values of all ranks, reduced by ATen.
  at::Tensor reduced(int number = 0) const;

  at::Tensor input(int number = 0) const;  // of this rank, in the setting's memory layout
  Tensors inputs() const;                  // one for each rank: numbers 1, 2, ...
  at::Tensor output() const;               // zeros
  Tensors outputs() const;
};

struct Started {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  Tensors results;  // those of this rank, once the works have ended
};

struct Collective {
  const char* name;
  bool reduces;
  Started (*start)(c10d::Backend& backend, const Setting& setting);
  Tensors (*expected)(const Setting& setting);
};

const std::vector<Collective>& all_collectives();
