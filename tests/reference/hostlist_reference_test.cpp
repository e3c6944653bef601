// Our host lists against libslurm's, on random lists that libslurm reads right: at most two bracket
// groups a name (it orders three in another way than two) and nothing after the last bracket.
#include <cstdlib>
#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <slurm/slurm.h>

#include "bridge/base/hostlist.h"

namespace torchbridge {
namespace {

class RandomLists {
 public:
  std::string list() {
    std::string text = element();
    for (int more = number(0, 4); more > 0; --more) text += "," + element();
    return text;
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::string element() {
    std::string text = word();
    for (int groups = number(0, 2); groups > 0; --groups) {
      text += brackets();
      if (groups > 1) text += word();
    }
    return text;
  }

  std::string word() {
    constexpr const char* kWords[] = {"n",   "node",    "gpu-", "r1n", "a.b",
                                      "x_y", "rack07-", "N",    "c0-"};
    return kWords[number(0, std::size(kWords) - 1)];
  }

  std::string brackets() {
    std::string text = "[" + range();
    for (int more = number(0, 2); more > 0; --more) text += "," + range();
    return text + "]";
  }

  std::string range() {
    const int low = number(0, 1200);
    const std::size_t width = number(0, 5);
    if (number(0, 1) == 0) return padded(low, width);
    return padded(low, width) + "-" + padded(low + number(0, 30), number(0, 3) == 0 ? 0 : width);
  }

  static std::string padded(int value, std::size_t width) {
    std::string digits = std::to_string(value);
    return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
  }

  std::mt19937 random_{1};
};

std::vector<std::string> libslurm_names(const std::string& text) {
  std::vector<std::string> names;
  hostlist_t list = slurm_hostlist_create(text.c_str());
  while (char* name = slurm_hostlist_shift(list)) {
    names.emplace_back(name);
    std::free(name);
  }
  slurm_hostlist_destroy(list);
  return names;
}

TEST(HostlistOracle, LibslurmNamesTheSameHosts) {
  RandomLists random;
  for (int i = 0; i < 10'000; ++i) {
    const std::string text = random.list();
    const auto names = parse_hostlist(text);
    ASSERT_TRUE(names) << text << ": " << names.error().message;
    ASSERT_EQ(*names, libslurm_names(text)) << text;
  }
}

}  // namespace
}  // namespace torchbridge
