#include "bridge/binding/cpu_set.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(CpuSet, ReadsAndWritesLists) {
  const struct {
    const char* text;
    CpuSet cpus;
    const char* written;
  } kCases[] = {
      {"", {}, ""},
      {"0", {0}, "0"},
      {"0-3,8", {0, 1, 2, 3, 8}, "0-3,8"},
      {"8,0-1,1", {0, 1, 8}, "0-1,8"},
      {"48-49,112-113", {48, 49, 112, 113}, "48-49,112-113"},
  };
  for (const auto& test : kCases) {
    const auto cpus = parse_cpu_list(test.text);
    ASSERT_TRUE(cpus) << test.text;
    EXPECT_EQ(*cpus, test.cpus) << test.text;
    EXPECT_EQ(cpu_list_text(*cpus), test.written);
  }
  for (const char* wrong : {"-1", "0-", "3-1", "a", "0,,1", "0-65536", "0 1"}) {
    const auto cpus = parse_cpu_list(wrong);
    ASSERT_FALSE(cpus) << wrong;
    EXPECT_EQ(cpus.error().message,
              "'" + std::string(wrong) + "': expected CPU numbers such as 0-3,8, at most 65535");
  }
}

TEST(CpuSet, ReadsMasks) {
  const struct {
    const char* text;
    CpuSet cpus;
  } kCases[] = {
      {"0x1", {0}},
      {"2", {1}},
      {"0xF0", {4, 5, 6, 7}},
      {"0x0", {}},
      {"0x10000000000000001", {0, 64}},
  };
  for (const auto& test : kCases) EXPECT_EQ(*parse_cpu_mask(test.text), test.cpus) << test.text;
  const std::string too_long(20000, 'f');
  for (const auto& wrong :
       {std::string(""), std::string("0x"), std::string("0xg"), std::string("-1"), too_long}) {
    EXPECT_FALSE(parse_cpu_mask(wrong)) << wrong;
  }
}

TEST(CpuSet, DividesByWholeCores) {
  const std::vector<CpuSet> threads = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const struct {
    CpuSet cpus;
    std::vector<CpuSet> cores;
    std::size_t count;
    std::vector<CpuSet> parts;
  } kCases[] = {
      {{0, 1, 2, 3, 4, 5, 6, 7}, threads, 1, {{0, 1, 2, 3, 4, 5, 6, 7}}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, threads, 2, {{0, 1, 4, 5}, {2, 3, 6, 7}}},
      {{0, 1, 2, 3, 4, 5, 6, 7}, threads, 3, {{0, 4}, {1, 5}, {2, 3, 6, 7}}},
      {{0, 1, 4, 6}, threads, 3, {{0, 4}, {1}, {6}}},
      {{0, 4}, threads, 2, {{0, 4}, {0, 4}}},
      {{0, 1, 2, 3}, {}, 2, {{0, 1}, {2, 3}}},
      {{3, 9}, threads, 2, {{3}, {9}}},
  };
  for (const auto& test : kCases) {
    for (std::size_t index = 0; index < test.count; ++index) {
      EXPECT_EQ(part_of(test.cpus, test.cores, index, test.count), test.parts[index])
          << cpu_list_text(test.cpus) << " " << index << " of " << test.count;
    }
  }
}

}  // namespace
}  // namespace torchbridge
