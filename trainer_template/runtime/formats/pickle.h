// What is inside a pickle of torch.save, read without executing anything: plain values, dictionaries, and tensors by
// reference.
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
using Pickled = std::shared_ptr<const PickledValue>;  // never null; values that Python shares are shared here

// One value of the pickle. Of the members only those of its kind mean something.
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
  // The value of a key of a dictionary that is that text; null where there is none, or no dictionary.
  const PickledValue* find(std::string_view key) const;
};

// torch's class of storages of that type, "FloatStorage" for "F32"; empty for a type that is not read.
std::string_view storage_class(std::string_view dtype);

// Protocol 2, of which torch.save writes 2.11's state_dicts, and no more of it than they need: dictionaries (also
// OrderedDict), lists, tuples, numbers, text, torch.Size, parameters and dense tensors. Every other class or function
// is an error that names it, since to rebuild it would be to call it. An error names the byte. The format: Python's
// documentation of pickletools; how torch uses it: torch/_utils.py and torch/serialization.py.
Result<Pickled> parse_pickle(std::string_view bytes);

}  // namespace torchbridge::train
