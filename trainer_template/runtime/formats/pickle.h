// Reads a pickle of torch.save without executing anything: plain values, dictionaries, and tensors by reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

// Where a tensor's elements are: in the archive's record data/STORAGE. All counts are in elements.
struct PickledTensor {
  std::string storage;
  std::string dtype;  // as in safetensors_header.h: "F32", "BF16", ...
  std::int64_t storage_size = 0;
  std::int64_t offset = 0;                   // of the first element in the storage
  std::vector<std::int64_t> shape, strides;  // of one length; every element lies inside the storage
};

struct PickledValue;
using Pickled = std::shared_ptr<const PickledValue>;  // never null; an object that Python shares is shared here too

// One value of the pickle. Only the members of its kind are set.
struct PickledValue {
  enum class Kind { kNone, kBool, kInteger, kFloat, kText, kTuple, kList, kDict, kTensor, kStorage, kName };

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;    // of kInteger, and 0 or 1 of kBool
  double number = 0;           // of kFloat
  std::string text;            // of kText; "module name" of kName
  std::vector<Pickled> items;  // of kTuple and kList; of kDict key, value, key, value ..., as they were put in
  PickledTensor tensor;        // of kTensor; without shape of kStorage
  int depth = 0;               // values below this one, at most

  bool is(Kind other) const { return kind == other; }
  // The value of the text key `key`; null if this is not a dictionary or has no such key.
  const PickledValue* find(std::string_view key) const;
};

// torch's storage class of that type, "FloatStorage" for "F32"; empty for an unsupported type.
std::string_view storage_class(std::string_view dtype);

// Reads the part of pickle protocol 2 that the state_dicts of PyTorch 2.11 use: dictionaries (also OrderedDict), lists,
// tuples, numbers, text, torch.Size, parameters and dense tensors. Every other class or function is an error that names
// it, because reading it would mean calling it. An error names the byte. The format: Python's documentation of
// pickletools. How torch uses it: torch/_utils.py and torch/serialization.py.
Result<Pickled> parse_pickle(std::string_view bytes);

}  // namespace torchbridge::train
