#include "bridge/coordination/run_status.h"

#include <gtest/gtest.h>

#include "bridge/coordination/coordinator.h"
#include "tests/support/growth.h"

using namespace torchbridge;

namespace {

TEST(RunStatusTable, ShowsNoControlCharacters) {
  CoordinatorRules rules;
  rules.run_id = "id\x1b[2J\nfalse line";
  RunReport report;
  report.program = "p\x1b]0;title\x07";
  report.host = "n0\r";
  Coordinator coordinator(rules, report, 0, {});
  Join join;
  join.run_id = rules.run_id;
  join.host = "n1\x1b[31m";
  coordinator.join(1, join, {});
  const auto table = run_status_table(coordinator.status_json());
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->find_first_of("\x1b\x07\r"), table->npos) << *table;
  EXPECT_TRUE(
      table->starts_with("p\\x1b]0;title\\x07 (run id\\x1b[2J\\x0afalse line): joining, round 0, "))
      << *table;
  EXPECT_NE(table->find("\nn1\\x1b[31m "), table->npos) << *table;
}

TEST(RunStatusTable, NamesARunThatHasAName) {
  const auto first_words = [](const std::string& run_id) {
    CoordinatorRules rules;
    rules.run_id = run_id;
    RunReport report;
    report.program = "train.sh";
    const auto table = run_status_table(Coordinator(rules, report, 0, {}).status_json());
    return table ? table->substr(0, table->find(',')) : table.error().message;
  };
  EXPECT_EQ(first_words("night"), "train.sh (run night): joining");
  EXPECT_EQ(first_words("none"), "train.sh: joining");
}

TEST(RunStatusTable, OfALongNameIsWhole) {
  Coordinator coordinator({}, {}, 0, {});
  Join join;
  join.host = std::string(255, 'h');
  coordinator.join(1, join, {});
  const auto table = run_status_table(coordinator.status_json());
  ASSERT_TRUE(table);
  EXPECT_NE(table->find(join.host + "        0  joining           -  -\n"), table->npos) << *table;
}

TEST(RunStatusTable, OfAnotherTextIsAnError) {
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[1]"),
                                  std::string(R"({"nodes": 3})"), std::string(1 << 20, '[')}) {
    EXPECT_FALSE(run_status_table(text)) << text.substr(0, 80);
  }
}

TEST(RunStatusTable, IsRefusedInLinearTimeForObjectsOfManyKeys) {
  const auto refuse = [](int keys) {
    std::string json = R"({"nodes": [{"k": 0)";
    for (int i = 0; i < keys; ++i) json += ",\"" + std::to_string(i) + "\":0";
    EXPECT_FALSE(run_status_table(json + "}]}"));
  };
  EXPECT_LT(growth(5'000, refuse), kLinearGrowth);
}

}  // namespace
