// The peak rate at which NVIDIA's GPUs multiply matrices.
#pragma once

#include <optional>
#include <string>

#include <torchbridge/settings.h>

namespace torchbridge::train {

// The peak of the GPU with this driver name ("NVIDIA H100 80GB HBM3"), in 10^12 operations a second
// for dense matrices; a multiplication and an addition are two operations. `is_tf32`: fp32 products
// are made in TF32. Nothing for a GPU that is not in the table, for a MIG part of a GPU, and for
// bf16 on a GPU without it.
std::optional<double> peak_tflops(const std::string& gpu, Precision precision, bool is_tf32);

}  // namespace torchbridge::train
