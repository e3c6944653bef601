#include "spank_plugin/task_board.h"

#include <unistd.h>

#include <gtest/gtest.h>

#include "bridge/core/step_record.h"
#include "tests/support/child_ending.h"

namespace torchbridge {
namespace {

const std::string kRecord = "1 7.0 n[0-1] 1,0,1";

Result<std::string> must_not_ask() { return Error{"asked again"}; }

TEST(TaskBoard, KeepsTheReasonOfTheFirstTask) {
  const TaskBoard board(2);
  EXPECT_EQ(board.reason(), nullptr);
  EXPECT_EQ(ending_of_child([&] { _exit(board.set_reason("first") ? 0 : 1); }), exited(0));
  EXPECT_TRUE(board.set_reason("second"));
  EXPECT_STREQ(board.reason(), "first");
}

TEST(TaskBoard, CutsALongReason) {
  const TaskBoard board(1);
  EXPECT_TRUE(board.set_reason(std::string(10'000, 'x').c_str()));
  EXPECT_EQ(board.reason(), std::string(4095, 'x'));
}

TEST(TaskBoard, KeepsNoReasonWithoutMemory) {
  const TaskBoard board;
  EXPECT_FALSE(board.set_reason("why"));
  EXPECT_EQ(board.reason(), nullptr);
}

TEST(TaskBoard, HasNoRecordBeyondItsTasks) {
  EXPECT_EQ(TaskBoard().record_of(0), nullptr);
  const TaskBoard board(2);
  ASSERT_NE(board.record_of(1), nullptr);
  EXPECT_FALSE(board.record_of(1)->written);
  EXPECT_EQ(board.record_of(2), nullptr);
}

TEST(TaskBoard, OneOfSeveralProcessesAsks) {
  const TaskBoard board(2);
  ASSERT_EQ(
      ending_of_child([&] { (void)board.ask_once(TaskBoard::kRecord, [] { return Result<std::string>(kRecord); }); }),
      exited(0));
  const auto found = board.ask_once(TaskBoard::kRecord, must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, kRecord);
}

TEST(TaskBoard, KeepsAnErrorAndAnEmptyAnswer) {
  const TaskBoard failed(1), empty(1);
  EXPECT_FALSE(failed.ask_once(TaskBoard::kRecord,
                               [] { return Result<std::string>(Error{std::string(2 * kMaxStepRecord, 'x')}); }));
  EXPECT_EQ(failed.ask_once(TaskBoard::kRecord, must_not_ask).error().message, std::string(kMaxStepRecord, 'x'));
  EXPECT_TRUE(empty.ask_once(TaskBoard::kRecord, [] { return Result<std::string>(std::string()); }));
  const auto found = empty.ask_once(TaskBoard::kRecord, must_not_ask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, "");
}

TEST(TaskBoard, AnswersEachQuestionByItself) {
  const TaskBoard board(1);
  EXPECT_EQ(*board.ask_once(TaskBoard::kRecord, [] { return Result<std::string>(kRecord); }), kRecord);
  EXPECT_EQ(*board.ask_once(TaskBoard::kAddress, [] { return Result<std::string>("10.0.0.1"); }), "10.0.0.1");
  EXPECT_EQ(*board.ask_once(TaskBoard::kRecord, must_not_ask), kRecord);
  EXPECT_EQ(*board.ask_once(TaskBoard::kAddress, must_not_ask), "10.0.0.1");
}

TEST(TaskBoard, EachTaskAsksWhereThereIsNoMemory) {
  const TaskBoard board;
  int asked = 0;
  for (int task = 0; task < 2; ++task)
    (void)board.ask_once(TaskBoard::kRecord, [&] { return ++asked, Result<std::string>(kRecord); });
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace torchbridge
