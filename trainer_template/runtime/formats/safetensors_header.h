// The header of a file in the public safetensors format: which tensors it holds, and where.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct TensorEntry {
  std::string name;
  std::string dtype;                 // "F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL"
  std::vector<std::int64_t> shape;   // empty for a scalar
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header

  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t size = 0;  // in bytes, its length field included

  bool operator==(const SafetensorsHeader&) const = default;
};

// Bytes of one element; 0 for a type that is not read or written here.
std::size_t element_size(std::string_view dtype);

// The bytes a file starts with: eight of length, and JSON padded by blanks to a multiple of eight. Names, types and
// shapes are taken from `tensors`; begin and end are filled in, without gaps.
std::string make_header(std::vector<TensorEntry>& tensors, const std::map<std::string, std::string>& metadata);

// `start` is the file's beginning, at least as much of it as the header, and `file_size` its whole length. Everything
// is checked: the length, the JSON and double keys in it, types, and that shapes and positions fill the file exactly,
// without overlap, gap or overflow.
Result<SafetensorsHeader> parse_header(std::string_view start, std::uint64_t file_size);

// How many bytes of a file parse_header must see, from its first eight; an error when that cannot be a header.
Result<std::uint64_t> header_size(std::string_view first_eight, std::uint64_t file_size);

}  // namespace torchbridge::train
