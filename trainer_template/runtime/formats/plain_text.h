// What a file is that is no plain text, by its first bytes.
#pragma once

#include <string>
#include <string_view>

namespace torchbridge::train {

// "is compressed by gzip: uncompress it with gunzip"; empty for what may be text in UTF-8 or in an
// encoding of one byte a character. `text` is the file's content, or its beginning of 8 bytes or
// more. By the formats' magic numbers and the byte order marks of Unicode.
std::string why_no_plain_text(std::string_view text);

}  // namespace torchbridge::train
