#include "trainer_template/runtime/tensors/scalar_types.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kByte, "U8"},  {at::kBool, "BOOL"},
};

}  // namespace

std::string dtype_name(at::ScalarType type) {
  for (const auto& [scalar, name] : kTypes) {
    if (scalar == type) return name;
  }
  throw TrainError(std::string("tensors of type ") + c10::toString(type) + " cannot be saved");
}

at::ScalarType scalar_type_of(const std::string& dtype) {
  return std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) { return dtype == type.second; })
      ->first;
}

}  // namespace torchbridge::train
