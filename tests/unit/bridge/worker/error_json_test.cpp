#include "bridge/worker/error_json.h"

#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

std::string json_of(std::string_view message, std::string_view callstack = "") {
  std::string json(error_json_bound(message.size() + callstack.size()), '\0');
  json.resize(put_error_json(message, callstack, 1700000000, json.data()));
  return json;
}

TEST(ErrorJson, HasTorchsForm) {
  EXPECT_EQ(
      json_of("a", "b\n"),
      R"({"message": {"message": "a", "extraInfo": {"py_callstack": "b\n", "timestamp": "1700000000"}}})");
}

TEST(ErrorJson, IsAsciiWhateverTheTextHolds) {
  const struct {
    std::string text;
    const char* expected;
  } kCases[] = {
      {"", R"("")"},
      {"say \"no\" to C:\\", R"("say \"no\" to C:\\")"},
      {"a\tb\nc\rd", R"("a\tb\nc\u000dd")"},
      {std::string("a\0b", 3), R"("a\u0000b")"},
      {"\x1b[31m\x7f", R"("\u001b[31m\u007f")"},
      {"é", R"("\u00e9")"},
      {"日本", R"("\u65e5\u672c")"},
      {"😀", R"("\ud83d\ude00")"},
      {"\U0010ffff", R"("\udbff\udfff")"},
      {"a\x80z", R"("a\ufffdz")"},                            // no first byte
      {"a\xc3", R"("a\ufffd")"},                              // cut off
      {"\xe6\x97z", R"("\ufffd\ufffdz")"},                    // cut off, and goes on
      {"\xc0\xaf", R"("\ufffd\ufffd")"},                      // '/' as two bytes
      {"\xe0\x80\xaf", R"("\ufffd\ufffd\ufffd")"},            // as three
      {"\xed\xa0\x80", R"("\ufffd\ufffd\ufffd")"},            // half of a pair of UTF-16
      {"\xf4\x90\x80\x80", R"("\ufffd\ufffd\ufffd\ufffd")"},  // beyond Unicode
      {"\xff", R"("\ufffd")"},
  };
  for (const auto& test : kCases) {
    const std::string json = json_of(test.text);
    EXPECT_TRUE(
        json.starts_with(std::string(R"({"message": {"message": )") + test.expected + ", \"extra"))
        << json;
  }
}

TEST(ErrorJson, StaysWithinItsBound) {
  const std::string control(1000, '\x01'), invalid(1000, '\xff');
  EXPECT_LE(json_of(control, invalid).size(), error_json_bound(2000));
  EXPECT_LE(json_of("").size(), error_json_bound(0));
}

}  // namespace
}  // namespace torchbridge
