#include "bridge/base/hostlist.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Names = std::vector<std::string>;

TEST(Hostlist, ExpandsNames) {
  const struct {
    const char* text;
    Names names;
  } kCases[] = {
      {"n1", {"n1"}},
      {"a,b", {"a", "b"}},
      {"b,a,b", {"b", "a", "b"}},
      {"n[1-3,7]", {"n1", "n2", "n3", "n7"}},
      {"n[08-10]", {"n08", "n09", "n10"}},
      {"n[9-11]", {"n9", "n10", "n11"}},
      {"n[3]", {"n3"}},
      {"n[1-2]x", {"n1x", "n2x"}},
      {"r[1-2]n[0-1]", {"r1n0", "r1n1", "r2n0", "r2n1"}},
      {"n[1-2],login.example.org", {"n1", "n2", "login.example.org"}},
      {"[1-2]", {"1", "2"}},
  };
  for (const auto& test : kCases) {
    const auto names = parse_hostlist(test.text);
    ASSERT_TRUE(names) << test.text << ": " << names.error().message;
    EXPECT_EQ(*names, test.names) << test.text;
  }
}

TEST(Hostlist, RejectsMalformedLists) {
  const struct {
    const char* text;
    const char* part_of_message;
  } kCases[] = {
      {"", "empty host name"},
      {"n[1-", "missing ']'"},
      {"n1]", "']' without '['"},
      {"n[[1]]", "inside brackets"},
      {"n[]", "expected a number"},
      {"n[a-b]", "expected a number"},
      {"n[1-]", "expected a number"},
      {"n[-1]", "expected a number"},
      {"n[3-1]", "the range is descending"},
      {"a,,b", "empty host name"},
      {",a", "empty host name"},
      {"a,", "empty host name"},
      {"n[1,,2]", "expected a number"},
      {"n 1", "is not allowed in a host name"},
      {"n;rm", "is not allowed in a host name"},
      {"n\n", "\\x0a"},
      {"n[0-99999999]", "too many entries"},
      {"a[0-9999]b[0-9999]", "too many entries"},
      {"n[0-99999999999999999999]", "expected a number"},
  };
  for (const auto& test : kCases) {
    const auto names = parse_hostlist(test.text);
    ASSERT_FALSE(names) << test.text;
    EXPECT_NE(names.error().message.find(test.part_of_message), std::string::npos)
        << test.text << ": " << names.error().message;
  }
}

// A million of them would fill the memory of a node.
TEST(Hostlist, RejectsNamesLongerThanAnyHostName) {
  const std::string long_part(256, 'x');
  for (const std::string& text : {long_part, "n[0-999999]" + long_part, long_part + "[1-2]",
                                  "n[1-2]" + long_part + "[3-4]"}) {
    const auto names = parse_hostlist(text);
    ASSERT_FALSE(names) << text;
    EXPECT_NE(names.error().message.find("longer than 255 characters"), std::string::npos)
        << names.error().message;
  }
  EXPECT_TRUE(parse_hostlist(std::string(255, 'x')));
}

TEST(TaskCounts, ExpandsRepetitions) {
  const struct {
    const char* text;
    std::vector<int> counts;
  } kCases[] = {{"2", {2}}, {"2(x3)", {2, 2, 2}}, {"5,1(x3)", {5, 1, 1, 1}}, {"1,2,1", {1, 2, 1}}};
  for (const auto& test : kCases) {
    const auto counts = parse_task_counts(test.text);
    ASSERT_TRUE(counts) << test.text << ": " << counts.error().message;
    EXPECT_EQ(*counts, test.counts) << test.text;
  }
}

TEST(TaskCounts, RejectsMalformedCounts) {
  for (const char* text : {"", "0", "-1", "5,1(x", "5,1(x)", "5,1(x0)", "5,1(x3", "5,1(3)", "5 ,1",
                           "x", "1,", "2(x3)4", "1(x9999999)", "99999999999"}) {
    EXPECT_FALSE(parse_task_counts(text)) << text;
  }
}

TEST(NumberList, ExpandsRangesUpToALimit) {
  EXPECT_EQ(*parse_number_list("0,3-5", 9), (std::vector<int>{0, 3, 4, 5}));
  EXPECT_EQ(*parse_number_list("20000-20001", 65535), (std::vector<int>{20000, 20001}));
  for (const char* text : {"", "a", "3-", "5-3", "10", "1,,2", "-1"})
    EXPECT_FALSE(parse_number_list(text, 9)) << text;
}

}  // namespace
}  // namespace torchbridge
