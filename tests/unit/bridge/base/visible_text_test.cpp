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
  for (const char* text : {"\xc2\x9b", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xe6\xbc", "\xff", "\x80"}) {
    EXPECT_EQ(visible_length(text), 0u) << visible_line(text);
    EXPECT_TRUE(visible_line(text).starts_with("\\x")) << visible_line(text);
  }
}

// They change the order in which a terminal shows a line, or hide characters in it.
TEST(VisibleLine, EscapesCharactersThatReorderOrHide) {
  EXPECT_EQ(visible_line("exit code \xe2\x80\xae"
                         "0 edoc"),
            "exit code \\xe2\\x80\\xae"
            "0 edoc");
  for (const char* text : {
           "\xc2\xad",         "\xd8\x9c",         "\xe1\x85\x9f",
           "\xe1\xa0\x8e",  // U+00AD 061C 115F 180E
           "\xe2\x80\x8b",     "\xe2\x80\x8d",     "\xe2\x80\x8e",
           "\xe2\x80\x8f",  // U+200B 200D 200E 200F
           "\xe2\x80\xa8",     "\xe2\x80\xa9",     "\xe2\x80\xaa",
           "\xe2\x80\xae",  // U+2028 2029 202A 202E
           "\xe2\x81\xa0",     "\xe2\x81\xa6",     "\xe2\x81\xa9",
           "\xe2\x81\xaf",  // U+2060 2066 2069 206F
           "\xe3\x85\xa4",     "\xef\xbb\xbf",     "\xef\xbe\xa0",
           "\xef\xbf\xbb",                                              // U+3164 FEFF FFA0 FFFB
           "\xf3\xa0\x80\x81", "\xf3\xa0\x81\xbf", "\xf0\x9d\x85\xb3",  // U+E0001 E007F 1D173
       }) {
    EXPECT_EQ(visible_length(text), 0u) << visible_line(text);
  }
  for (const char* text :
       {"\xc2\xac", "\xe2\x80\x90", "\xe2\x80\xa7", "\xe2\x80\xb0", "\xe2\x82\xac"}) {
    EXPECT_EQ(visible_line(text), text) << "a neighbour of those above";
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
