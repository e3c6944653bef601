#include "bridge/base/visible_text.h"

#include <gtest/gtest.h>

using namespace torchbridge;

namespace {

TEST(VisibleLine, KeepsLettersOfAllLanguages) {
  const std::string text = "f\xc3\xb6lder \xe6\xbc\xa2 \xf0\x9f\x98\x80";
  EXPECT_EQ(visible_line(text), text);
}

TEST(VisibleLine, EscapesWhatIsNoCharacterToShow) {
  EXPECT_EQ(visible_line("a\x1b[0m\n\x7f"), "a\\x1b[0m\\x0a\\x7f");
  // A control character of U+0080 and above, overlong forms, a surrogate, above U+10FFFF, cut off.
  for (const char* text :
       {"\xc2\x9b", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe6\xbc", "\xff", "\x80"}) {
    EXPECT_EQ(visible_length(text), 0u) << visible_line(text);
    EXPECT_TRUE(visible_line(text).starts_with("\\x")) << visible_line(text);
  }
}

TEST(VisibleLine, IsCutBetweenCharacters) {
  EXPECT_EQ(visible_line(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(visible_line(std::string(79, 'x') + "\xc3\xb6x"), std::string(79, 'x') + "\xc3\xb6...");
}

TEST(VisibleLine, OfItselfIsTheSame) {
  const std::string shown = visible_line("a\x1b\\x1b\n" + std::string(300, 'x'), 100);
  EXPECT_EQ(visible_line(shown, 1000), shown);
}

}  // namespace
