// libtorch's element types by the names that safetensors_header.h gives them.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

namespace torchbridge::train {

// Throws TrainError for a type that has no such name.
std::string dtype_name(at::ScalarType type);

// REQUIRES: element_size(dtype) != 0.
at::ScalarType scalar_type_of(const std::string& dtype);

}  // namespace torchbridge::train
