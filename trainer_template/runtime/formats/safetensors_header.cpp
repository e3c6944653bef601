#include "trainer_template/runtime/formats/safetensors_header.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr const char* kMetadata = "__metadata__";

// All that the reference implementation has (safetensors/src/tensor.rs), with their bits.
constexpr std::pair<std::string_view, std::size_t> kTypes[] = {
    {"F32", 32},    {"F64", 64},    {"F16", 16},    {"BF16", 16},   {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

// 0 for an unknown type.
std::size_t bits_of(std::string_view dtype) {
  const auto* found =
      std::ranges::find(kTypes, dtype, &std::pair<std::string_view, std::size_t>::first);
  return found == std::end(kTypes) ? 0 : found->second;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The bytes of the shape with elements of so many bits.
std::optional<std::uint64_t> byte_count(const TensorEntry& tensor, std::uint64_t bits) {
  for (std::int64_t length : tensor.shape) {
    if (length < 0) return std::nullopt;
    if (length != 0 && bits > std::uint64_t{std::numeric_limits<std::int64_t>::max()} / length)
      return std::nullopt;
    bits *= length;
  }
  return bits % 8 == 0 ? std::optional(bits / 8) : std::nullopt;
}

// A later release of the format may have more types: one of these has a size that fits the tensor's
// shape and offsets.
bool may_be_type(const TensorEntry& tensor) {
  constexpr std::uint64_t kMostBits = 128;
  constexpr std::size_t kLongest = 32;
  const bool is_name =
      !tensor.dtype.empty() && tensor.dtype.size() <= kLongest &&
      tensor.dtype.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos;
  for (std::uint64_t bits = 1; is_name && bits <= kMostBits; ++bits) {
    const auto bytes = byte_count(tensor, bits);
    if (bytes && tensor.begin + *bytes == tensor.end) return true;
  }
  return false;
}

// Finds a key that one object has twice: json::parse keeps the last of them, which would hide one
// of two tensors. A callback of json::parse would see both, but with one the parser is quadratic in
// the members of an object.
class DoubleKey : public json::json_sax_t {
 public:
  const std::string& found() const { return found_; }  // empty: none

  bool key(std::string& key) override {
    if (!open_objects_.back().insert(key).second) found_ = key;
    return found_.empty();
  }
  bool start_object(std::size_t) override { return open_objects_.emplace_back().empty(); }
  bool end_object() override {
    open_objects_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  std::vector<std::unordered_set<std::string>> open_objects_;
  std::string found_;
};

TensorEntry entry_from(const std::string& name, const json& value) {
  TensorEntry entry{.name = name};
  value.at("dtype").get_to(entry.dtype);
  for (const json& length : value.at("shape")) {
    if (!length.is_number_unsigned())
      throw std::out_of_range(formatted("'{}' has a bad shape", name));
    entry.shape.push_back(length.get<std::int64_t>());
  }
  const json& offsets = value.at("data_offsets");
  if (offsets.size() != 2 || !offsets.at(0).is_number_unsigned() ||
      !offsets.at(1).is_number_unsigned()) {
    throw std::out_of_range(formatted("'{}' has bad data_offsets", name));
  }
  entry.begin = offsets.at(0);
  entry.end = offsets.at(1);
  return entry;
}

Status check_positions(const std::vector<TensorEntry>& tensors, std::uint64_t data_size) {
  std::uint64_t position = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::string name = formatted("tensor '{}'", printable(tensor.name));
    const std::size_t bits = bits_of(tensor.dtype);
    if (bits == 0 && !may_be_type(tensor))
      return Error{formatted("{} has the unknown type '{}', which does not fit its shape", name,
                             printable(tensor.dtype))};
    const auto bytes =
        bits == 0 ? std::optional(tensor.end - tensor.begin) : byte_count(tensor, bits);
    if (!bytes) return Error{formatted("{} has an invalid shape", name)};
    if (tensor.begin != position)
      return Error{formatted("{} overlaps another one or leaves a gap before it", name)};
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      return Error{formatted("{} has a shape that does not match its data_offsets", name)};
    }
    position = tensor.end;
  }
  if (position != data_size) {
    return Error{formatted("the tensors take {} bytes, the file has {}", position, data_size)};
  }
  return Ok{};
}

}  // namespace

bool is_known_type(std::string_view dtype) { return bits_of(dtype) != 0; }

std::size_t element_size(std::string_view dtype) {
  const std::size_t bits = bits_of(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

std::string make_header(std::vector<TensorEntry>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t position = 0;
  for (TensorEntry& tensor : tensors) {
    tensor.begin = position;
    tensor.end = position += byte_count(tensor, bits_of(tensor.dtype)).value();
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

Result<std::uint64_t> header_size(std::string_view first_eight, std::uint64_t file_size) {
  if (first_eight.size() < kLengthBytes) return Error{"is too short for a safetensors file"};
  const std::uint64_t length = little_endian(first_eight);
  if (length > kMaxHeader || length + kLengthBytes > file_size) {
    return Error{
        formatted("is not a safetensors file, or is truncated: its length field declares a header "
                  "of {} bytes",
                  length)};
  }
  return length + kLengthBytes;
}

Result<SafetensorsHeader> parse_header(std::string_view start, std::uint64_t file_size) try {
  const auto size = header_size(start, file_size);
  if (!size) return size.error();
  if (start.size() < *size) return Error{"is truncated within its header"};

  const std::string_view text = start.substr(kLengthBytes, *size - kLengthBytes);
  if (!text.starts_with('{'))
    return Error{"is not a safetensors file: its header does not start with '{'"};
  const json document = json::parse(text);
  DoubleKey double_key;
  json::sax_parse(text, &double_key);
  if (!double_key.found().empty())
    return Error{formatted("holds '{}' twice", printable(double_key.found()))};

  SafetensorsHeader header{.size = *size};
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadata) {
      value.get_to(header.metadata);
    } else {
      header.tensors.push_back(entry_from(name, value));
    }
  }
  // An empty tensor begins where the next one begins: the end decides their order.
  std::ranges::sort(header.tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (const Status good = check_positions(header.tensors, file_size - *size); !good)
    return good.error();
  return header;
} catch (const std::exception& error) {
  return Error{formatted("has an invalid header: {}", printable(error.what()))};
}

}  // namespace torchbridge::train
