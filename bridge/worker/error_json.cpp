#include "bridge/worker/error_json.h"

#include <algorithm>
#include <charconv>

#include "bridge/base/visible_text.h"

namespace torchbridge {
namespace {

constexpr Utf8Character kNoCharacter{0xfffd, 1};

class JsonWriter {
 public:
  explicit JsonWriter(char* buffer) : begin_(buffer), end_(buffer) {}

  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  void put(std::string_view text) { end_ = std::copy(text.begin(), text.end(), end_); }

  void put_string(std::string_view text) {
    put("\"");
    while (!text.empty()) {
      const Utf8Character character = first_character(text).value_or(kNoCharacter);
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
