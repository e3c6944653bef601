#include "trainer_template/runtime/tensors/scalar_types.h"

#include <algorithm>
#include <utility>

#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {
    {at::kFloat, "F32"},
    {at::kDouble, "F64"},
    {at::kHalf, "F16"},
    {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},
    {at::kInt, "I32"},
    {at::kShort, "I16"},
    {at::kChar, "I8"},
    {at::kUInt64, "U64"},
    {at::kUInt32, "U32"},
    {at::kUInt16, "U16"},
    {at::kByte, "U8"},
    {at::kBool, "BOOL"},
    {at::kComplexFloat, "C64"},
    {at::kFloat8_e4m3fn, "F8_E4M3"},
    {at::kFloat8_e5m2, "F8_E5M2"},
    {at::kFloat8_e8m0fnu, "F8_E8M0"},
};

}  // namespace

std::string dtype_name(at::ScalarType type) {
  for (const auto& [scalar, name] : kTypes) {
    if (scalar == type) return name;
  }
  throw TrainError(formatted("tensors of type {} cannot be saved", c10::toString(type)));
}

at::ScalarType scalar_type_of(const std::string& dtype) {
  return std::ranges::find_if(kTypes, [&](const auto& type) { return dtype == type.second; })
      ->first;
}

}  // namespace torchbridge::train
