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
  // "F32", "BF16", "I64", "F8_E4M3", "F4" ...; or the name of a type that is not known.
  std::string dtype;
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

// Whether this is a type of the format as it is today.
bool is_known_type(std::string_view dtype);

// Bytes of one element; 0 for an unknown type, and where it is not a whole number (F4, F6_E2M3,
// F6_E3M2).
std::size_t element_size(std::string_view dtype);

// The first bytes of a file: eight of length, then JSON padded with spaces to a multiple of eight.
// Reads names, types and shapes of `tensors`, and sets their begin and end, without gaps. Their
// types are known ones.
std::string make_header(std::vector<TensorEntry>& tensors,
                        const std::map<std::string, std::string>& metadata);

// `start` is the beginning of the file and contains at least the header; `file_size` is the length
// of the file in bytes. Checks the length, the JSON, double keys, types, and that shapes and
// data_offsets cover the file exactly, without overlap, gap or overflow. A type that is not known
// is one of capital letters, digits and '_' whose elements may have the size that these give.
Result<SafetensorsHeader> parse_header(std::string_view start, std::uint64_t file_size);

// Bytes that parse_header() needs, from the first eight bytes of the file; an error if these are
// not of a header.
Result<std::uint64_t> header_size(std::string_view first_eight, std::uint64_t file_size);

}  // namespace torchbridge::train
