#include "trainer_template/runtime/run/agreement.h"

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

struct Named : Dataset {
  explicit Named(std::vector<std::string> classes) : names(std::move(classes)) {}
  std::int64_t size() const override { return 1; }
  Batch collate(std::span<const std::int64_t>) const override { return {}; }
  std::vector<std::string> class_names() const override { return names; }
  std::vector<std::string> names;
};

TEST(Agreement, TheFirstClassThatDiffersIsNamed) {
  const struct {
    std::vector<std::string> trained, others;
    std::string expected;
  } kCases[] = {
      {{"a", "b"}, {"a", "b"}, ""},
      {{"a", "b"}, {}, ""},
      {{}, {"a"}, ""},
      {{"a", "b"}, {"b"}, "class 0 is 'a' in the training set and 'b' in the evaluation set: "},
      {{"a", "b"}, {"a"}, "class 1 is 'b' in the training set and missing in the evaluation set: "},
      {{"a"}, {"a", "b"}, "class 1 is missing in the training set and 'b' in the evaluation set: "},
  };
  for (const auto& c : kCases) {
    const std::string message = error_of([&] {
      check_same_names(Named(c.trained), {c.others, {}}, "the evaluation set");
    });
    EXPECT_TRUE(c.expected.empty() ? message.empty() : contains(message, c.expected)) << message;
  }
}

TEST(Agreement, NamesAreThoseThatArePrinted) {
  EXPECT_EQ(printed_names(Named({"caf\xe9"})).classes, std::vector<std::string>{"caf\\xe9"});
}

}  // namespace
}  // namespace torchbridge::train
