// How fast NVIDIA's GPUs multiply matrices at most.
#pragma once

#include <optional>
#include <string>

namespace torchbridge::train {

// Of the GPU that the driver calls so ("NVIDIA H100 80GB HBM3"), in 10^12 operations a second, without the factor of
// 2 for sparse matrices; a multiplication and an addition are two. `precision` and `fp32_precision` are the values of
// the options of these names. Nothing for a GPU that is not in the table, for a part of one (MIG), and for bf16 on one
// that has none.
std::optional<double> peak_tflops(const std::string& gpu, const std::string& precision,
                                  const std::string& fp32_precision);

}  // namespace torchbridge::train
