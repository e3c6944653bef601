#include "spank_plugin/shared_task_table.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "bridge/core/step_record.h"
#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

const std::string kRecord = "1 7.0 n[0-1] 1,0,1";

Result<std::string> must_not_ask() { return Error{"asked again"}; }

TEST(SharedTaskTable, KeepsTheReasonOfTheFirstTask) {
  const SharedTaskTable table(2);
  EXPECT_EQ(table.reason(), nullptr);
  EXPECT_EQ(ending_of_child([&] { _exit(table.set_reason("first") ? 0 : 1); }), exited(0));
  EXPECT_TRUE(table.set_reason("second"));
  EXPECT_STREQ(table.reason(), "first");
}

TEST(SharedTaskTable, TruncatesALongReason) {
  const SharedTaskTable table(1);
  EXPECT_TRUE(table.set_reason(std::string(10'000, 'x').c_str()));
  EXPECT_EQ(table.reason(), std::string(4095, 'x'));
}

TEST(SharedTaskTable, KeepsNoReasonWithoutMemory) {
  const SharedTaskTable table;
  EXPECT_FALSE(table.set_reason("why"));
  EXPECT_EQ(table.reason(), nullptr);
}

TEST(SharedTaskTable, HasOneRecordForEachTask) {
  EXPECT_EQ(SharedTaskTable().record_of(0), nullptr);
  const SharedTaskTable table(2);
  ASSERT_NE(table.record_of(1), nullptr);
  EXPECT_FALSE(table.record_of(1)->written);
  EXPECT_EQ(table.record_of(2), nullptr);
}

TEST(SharedTaskTable, OneOfSeveralProcessesAsks) {
  const SharedTaskTable table(2);
  ASSERT_EQ(ending_of_child(
                [&] { (void)table.ask_once(SharedTaskTable::kRecord, [] { return Result<std::string>(kRecord); }); }),
            exited(0));
  const auto found = table.ask_once(SharedTaskTable::kRecord, must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, kRecord);
}

TEST(SharedTaskTable, KeepsAnErrorAndAnEmptyAnswer) {
  const SharedTaskTable failed(1), empty(1);
  EXPECT_FALSE(failed.ask_once(SharedTaskTable::kRecord,
                               [] { return Result<std::string>(Error{std::string(2 * kMaxStepRecord, 'x')}); }));
  EXPECT_EQ(failed.ask_once(SharedTaskTable::kRecord, must_not_ask).error().message, std::string(kMaxStepRecord, 'x'));
  EXPECT_TRUE(empty.ask_once(SharedTaskTable::kRecord, [] { return Result<std::string>(std::string()); }));
  const auto found = empty.ask_once(SharedTaskTable::kRecord, must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "");
}

TEST(SharedTaskTable, KeepsTheAnswersOfTheQuestionsApart) {
  const SharedTaskTable table(1);
  EXPECT_EQ(*table.ask_once(SharedTaskTable::kRecord, [] { return Result<std::string>(kRecord); }), kRecord);
  EXPECT_EQ(*table.ask_once(SharedTaskTable::kAddress, [] { return Result<std::string>("10.0.0.1"); }), "10.0.0.1");
  EXPECT_EQ(*table.ask_once(SharedTaskTable::kRecord, must_not_ask), kRecord);
  EXPECT_EQ(*table.ask_once(SharedTaskTable::kAddress, must_not_ask), "10.0.0.1");
}

TEST(SharedTaskTable, EachTaskAsksWhereThereIsNoMemory) {
  const SharedTaskTable table;
  int asked = 0;
  for (int task = 0; task < 2; ++task)
    (void)table.ask_once(SharedTaskTable::kRecord, [&] { return ++asked, Result<std::string>(kRecord); });
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace torchbridge
