#include "trainer_template/runtime/formats/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "bridge/base/env_map.h"

namespace torchbridge::train {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr const char* kMetadata = "__metadata__";

constexpr std::pair<std::string_view, std::size_t> kTypes[] = {
    {"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"BOOL", 1},
};

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::optional<std::uint64_t> byte_count(const TensorEntry& tensor) {
  std::uint64_t bytes = element_size(tensor.dtype);
  for (std::int64_t length : tensor.shape) {
    if (length < 0) return std::nullopt;
    if (length != 0 && bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()} / length) return std::nullopt;
    bytes *= length;
  }
  return bytes;
}

// JSON parsers keep the last of two equal keys, which would hide one of two tensors.
json parse_without_double_keys(std::string_view text, std::string& double_key) {
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) double_key = key;
    }
    return true;
  };
  return json::parse(text, watch);
}

TensorEntry entry_from(const std::string& name, const json& value) {
  TensorEntry entry{.name = name};
  value.at("dtype").get_to(entry.dtype);
  for (const json& length : value.at("shape")) {
    if (!length.is_number_unsigned()) throw std::out_of_range("'" + name + "' has a bad shape");
    entry.shape.push_back(length.get<std::int64_t>());
  }
  const json& offsets = value.at("data_offsets");
  if (offsets.size() != 2 || !offsets.at(0).is_number_unsigned() || !offsets.at(1).is_number_unsigned()) {
    throw std::out_of_range("'" + name + "' has bad data_offsets");
  }
  entry.begin = offsets.at(0);
  entry.end = offsets.at(1);
  return entry;
}

Status check_positions(const std::vector<TensorEntry>& tensors, std::uint64_t data_size) {
  std::uint64_t position = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::string name = "tensor '" + printable(tensor.name) + "'";
    if (element_size(tensor.dtype) == 0) return Error{name + " has the unknown type '" + printable(tensor.dtype) + "'"};
    const auto bytes = byte_count(tensor);
    if (!bytes) return Error{name + " has an invalid shape"};
    if (tensor.begin != position) return Error{name + " overlaps another one or leaves a gap before it"};
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      return Error{name + " has a shape that does not match its data_offsets"};
    }
    position = tensor.end;
  }
  if (position != data_size) {
    return Error{"the tensors take " + std::to_string(position) + " bytes, the file has " + std::to_string(data_size)};
  }
  return Ok{};
}

}  // namespace

std::size_t element_size(std::string_view dtype) {
  for (const auto& [name, size] : kTypes) {
    if (name == dtype) return size;
  }
  return 0;
}

std::string make_header(std::vector<TensorEntry>& tensors, const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t position = 0;
  for (TensorEntry& tensor : tensors) {
    tensor.begin = position;
    tensor.end = position += byte_count(tensor).value();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

Result<std::uint64_t> header_size(std::string_view first_eight, std::uint64_t file_size) {
  if (first_eight.size() < kLengthBytes) return Error{"is too short for a safetensors file"};
  const std::uint64_t length = little_endian(first_eight);
  if (length > kMaxHeader || length + kLengthBytes > file_size) {
    return Error{"is not a safetensors file, or is truncated: its length field declares a header of " +
                 std::to_string(length) + " bytes"};
  }
  return length + kLengthBytes;
}

Result<SafetensorsHeader> parse_header(std::string_view start, std::uint64_t file_size) try {
  const auto size = header_size(start, file_size);
  if (!size) return size.error();
  if (start.size() < *size) return Error{"is truncated within its header"};

  std::string double_key;
  const std::string_view text = start.substr(kLengthBytes, *size - kLengthBytes);
  if (!text.starts_with('{')) return Error{"is not a safetensors file: its header does not start with '{'"};
  const json document = parse_without_double_keys(text, double_key);
  if (!double_key.empty()) return Error{"holds '" + printable(double_key) + "' twice"};

  SafetensorsHeader header{.size = *size};
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadata) {
      value.get_to(header.metadata);
    } else {
      header.tensors.push_back(entry_from(name, value));
    }
  }
  // An empty tensor begins where the next one begins: the end decides their order.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  if (const Status good = check_positions(header.tensors, file_size - *size); !good) return good.error();
  return header;
} catch (const std::exception& error) {
  return Error{std::string("has an invalid header: ") + printable(error.what())};
}

}  // namespace torchbridge::train
