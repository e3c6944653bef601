#include "trainer_template/runtime/formats/event_record.h"

#include <array>
#include <bit>
#include <cstring>

namespace torchbridge::train {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written in the byte order of memory");

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? (value >> 1) ^ kPolynomial : value >> 1;
    table[i] = value;
  }
  return table;
}();

template <class Number>
std::string bytes_of(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return bytes_of<std::uint32_t>(std::rotr(crc, 15) + 0xa282ead8u);
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Wire types of protocol buffers (https://protobuf.dev/programming-guides/encoding).
std::string tag(int field, int wire_type) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}
std::string number_field(int field, double value) { return tag(field, 1) + bytes_of(value); }
std::string number_field(int field, float value) { return tag(field, 5) + bytes_of(value); }
std::string integer_field(int field, std::int64_t value) {
  return tag(field, 0) + varint(static_cast<std::uint64_t>(value));
}
std::string text_field(int field, std::string_view text) {
  return tag(field, 2) + varint(text.size()) + std::string(text);
}

// Fields of Event.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return crc ^ 0xffffffff;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = bytes_of<std::uint64_t>(bytes.size());
  return length + masked_crc(length) + std::string(bytes) + masked_crc(bytes);
}

std::string scalar_event(double wall_time, std::int64_t step, const std::string& name,
                         float value) {
  constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;  // of Summary, and of Summary.Value
  const std::string summary =
      text_field(kValue, text_field(kTag, name) + number_field(kSimpleValue, value));
  return number_field(kWallTime, wall_time) + integer_field(kStep, step) +
         text_field(kSummary, summary);
}

std::string version_event(double wall_time) {
  return number_field(kWallTime, wall_time) + text_field(kFileVersion, "brain.Event:2");
}

std::string start_event(double wall_time, std::int64_t first_step) {
  constexpr int kStatus = 1, kStart = 1;  // of SessionLog
  return number_field(kWallTime, wall_time) + integer_field(kStep, first_step) +
         text_field(kSessionLog, integer_field(kStatus, kStart));
}

}  // namespace torchbridge::train
