// What a program gets wrong in its training loop is an error of one line, not a silent change.
#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

TEST(MisusedSession, EachMisuseIsOneLineThatNamesIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"forget a parameter", "no optimizer of the session has the parameter 'output.bias'"},
      {"step first", "the program calls next_step() without begin(): call that first"},
      {"end first", "the program calls end() without begin(): call that first"},
      {"evaluate twice", "the program evaluates a model as 'mean': expected a name"},
      {"begin twice", "the program calls begin() after begin(): call it before"},
      {"keep late", "the program calls keep() after begin(): call it before"},
      {"evaluate late", "the program calls evaluate() after begin(): call it before"},
      {"log three",
       "a step logs the number 'three': expected a tensor of one number, this one "
       "has the sizes [3]"},
      {"log nothing",
       "a step logs the number 'nothing': expected a tensor of one number, this one "
       "is undefined"},
      {"log late", "a step logs the number 'late': call log() before the session's reduce()"},
  };
  for (const auto& [misuse, line] : cases) {
    Ranks ranks(1, {in_build("bin/misused_session"), "--quiet", "--data", in_source("data/digits")},
                {{"MISUSE", misuse}});
    expect_one_line(ranks, line);
  }
}

}  // namespace
