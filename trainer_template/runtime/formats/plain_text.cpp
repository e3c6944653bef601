#include "trainer_template/runtime/formats/plain_text.h"

namespace torchbridge::train {

std::string why_no_plain_text(std::string_view text) {
  using namespace std::string_view_literals;
  constexpr struct {
    std::string_view begin;
    const char* format;
  } kFormats[] = {{"\x1f\x8b"sv, "is compressed by gzip: uncompress it with gunzip"},
                  {"BZh"sv, "is compressed by bzip2: uncompress it with bunzip2"},
                  {"\xfd"
                   "7zXZ\0"sv,
                   "is compressed by xz: uncompress it with unxz"},
                  {"\x28\xb5\x2f\xfd"sv, "is compressed by zstd: uncompress it with unzstd"},
                  {"PK\3\4"sv, "is a ZIP archive: unpack it"},
                  {"\xff\xfe\0\0"sv, "is UTF-32 text: save it as UTF-8"},
                  {"\0\0\xfe\xff"sv, "is UTF-32 text: save it as UTF-8"},
                  {"\xff\xfe"sv, "is UTF-16 text, or no text: save it as UTF-8"},
                  {"\xfe\xff"sv, "is UTF-16 text, or no text: save it as UTF-8"}};
  for (const auto& [begin, format] : kFormats) {
    if (text.starts_with(begin)) return format;
  }
  // A letter of ASCII in UTF-16 has a zero beside it.
  const bool has_zero = text.substr(0, 4).find('\0') != std::string_view::npos;
  return has_zero ? "is UTF-16 text, or no text: save it as UTF-8" : "";
}

}  // namespace torchbridge::train
