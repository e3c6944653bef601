#include "bridge/worker/error_json.h"

#include <algorithm>
#include <charconv>

namespace torchbridge {
namespace {

constexpr std::uint32_t kNoCharacter = 0xfffd;

struct Character {
  std::uint32_t code = kNoCharacter;
  std::size_t size = 1;  // in bytes
};

// The first character of UTF-8 text that is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const std::size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return {};
  std::uint32_t code = byte(0) & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[size] || code > 0x10ffff || is_surrogate) return {};
  return {code, size};
}

class JsonWriter {
 public:
  explicit JsonWriter(char* buffer) : begin_(buffer), end_(buffer) {}

  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  void put(std::string_view text) { end_ = std::copy(text.begin(), text.end(), end_); }

  void put_string(std::string_view text) {
    put("\"");
    while (!text.empty()) {
      const Character character = first_character(text);
      put_escaped(character.code);
      text.remove_prefix(character.size);
    }
    put("\"");
  }

 private:
  void put_escaped(std::uint32_t code) {
    if (code == '"' || code == '\\') return put("\\"), put_byte(code);
    if (code == '\n') return put("\\n");
    if (code == '\t') return put("\\t");
    if (code >= 0x20 && code < 0x7f) return put_byte(code);
    if (code < 0x10000) return put_unit(code);
    put_unit(0xd800 + ((code - 0x10000) >> 10));
    put_unit(0xdc00 + ((code - 0x10000) & 0x3ff));
  }
  void put_byte(std::uint32_t code) { *end_++ = static_cast<char>(code); }
  void put_unit(std::uint32_t unit) {
    put("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) put_byte("0123456789abcdef"[unit >> shift & 0xf]);
  }

  char *begin_, *end_;
};

}  // namespace

std::size_t put_error_json(std::string_view message, std::string_view callstack,
                           std::int64_t seconds, char* buffer) {
  char digits[24];
  const char* digits_end = std::to_chars(digits, digits + sizeof digits, seconds).ptr;
  JsonWriter json(buffer);
  json.put(R"({"message": {"message": )");
  json.put_string(message);
  json.put(R"(, "extraInfo": {"py_callstack": )");
  json.put_string(callstack);
  json.put(R"(, "timestamp": )");
  json.put_string({digits, static_cast<std::size_t>(digits_end - digits)});
  json.put("}}}");
  return json.size();
}

}  // namespace torchbridge
