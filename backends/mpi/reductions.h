// MPI's datatypes and operators for tensors, and custom ones where MPI has none.
#pragma once

#include <c10/core/ScalarType.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torchbridge::mpi {

struct Reduction {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
};

// SUM for AVG and PREMUL_SUM, whose factors are the caller's. Bools are reduced as truth values:
// SUM and MAX are "or", PRODUCT and MIN are "and". On MPI's thread, but check_reduction on any.
// Throws an error that names operator and type where no such reduction exists.
Reduction reduction_of(c10d::ReduceOp::RedOpType op, at::ScalarType type);
void check_reduction(c10d::ReduceOp::RedOpType op, at::ScalarType type);

// `bytes` as a count and a type, also where an int is too small. The destructor frees the type,
// which MPI allows once a call was made with it.
class ByteCount {
 public:
  ByteCount(std::int64_t bytes, std::int64_t largest_count);
  ~ByteCount();
  ByteCount(const ByteCount&) = delete;
  ByteCount& operator=(const ByteCount&) = delete;

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
};

}  // namespace torchbridge::mpi
