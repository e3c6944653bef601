#include "trainer_template/runtime/output/progress.h"

#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(Progress, ShowsTheRemainingTime) {
  const std::pair<double, const char*> kCases[] = {
      {0, "0:00"},    {-1, "0:00"},    {7.4, "0:07"},      {59.6, "1:00"},
      {723, "12:03"}, {3599, "59:59"}, {10800, "3:00:00"}, {90061, "25:01:01"}};
  for (const auto& [seconds, text] : kCases) EXPECT_EQ(duration_text(seconds), text);
}

std::string bar_of(const StepMetrics& record, std::int64_t total_steps, std::int64_t done = 0) {
  testing::internal::CaptureStdout();
  Progress progress(ProgressStyle::kBar, total_steps, done);
  std::string shown;
  while (shown.empty()) {  // it is drawn every tenth of a second
    progress.show(record);
    std::fflush(stdout);
    shown = testing::internal::GetCapturedStdout();
    testing::internal::CaptureStdout();
  }
  testing::internal::GetCapturedStdout();
  return shown;
}

// With --log-every the first step that is shown is not the first one.
TEST(Progress, CountsStepsThatWereNotShown) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::string shown = bar_of({.step = 14, .loss = 1}, 414, 10);
  const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
  int minutes = 0, seconds = 0;
  const auto left = shown.find("samples/s  ");
  ASSERT_NE(left, std::string::npos) << shown;
  ASSERT_EQ(std::sscanf(shown.c_str() + left, "samples/s %d:%d left", &minutes, &seconds), 2)
      << shown;
  EXPECT_LE(60 * minutes + seconds, passed / 4 * 400 + 1);
}

TEST(Progress, CountsTokensWhereTheTaskDoes) {
  const StepMetrics images{.step = 4, .loss = 1, .samples_per_s = 100};
  StepMetrics tokens = images;
  tokens.tokens_per_s = 6400;
  EXPECT_NE(bar_of(images, 4).find("loss 1.0000  100 samples/s\x1b[K"), std::string::npos)
      << bar_of(images, 4);
  EXPECT_NE(bar_of(tokens, 4).find("loss 1.0000  6400 tokens/s\x1b[K"), std::string::npos)
      << bar_of(tokens, 4);
  const std::string half = bar_of(tokens, 8);
  EXPECT_NE(half.find("step 4/8  epoch 0  loss 1.0000  6400 tokens/s  0:00 left\x1b[K"),
            std::string::npos)
      << half;
}

TEST(Progress, LeavesOutWhatDoesNotFitOnTheTerminal) {
  const ProgressNumbers numbers{
      .step = 57, .total = 114, .epoch = 3, .loss = 0.1234, .rate = 12345, .seconds_left = 12};
  const std::pair<int, const char*> kCases[] = {
      {120,
       "[###############...............]  50%  step 57/114  epoch 3  loss 0.1234  12345 samples/s  "
       "0:12 left"},
      {80, "[####.....]  50%  step 57/114  epoch 3  loss 0.1234  12345 samples/s  0:12 left"},
      {70, " 50%  step 57/114  epoch 3  loss 0.1234  12345 samples/s  0:12 left"},
      {60, " 50%  step 57/114  loss 0.1234  12345 samples/s  0:12 left"},
      {50, "[##...]  50%  step 57/114  loss 0.1234  0:12 left"},
      {31, " 50%  step 57/114  loss 0.1234"},
      {30, "[####.....]  50%  step 57/114"},
      {20, " 50%  step 57/114"},
      {8, "step 57"},
      {1, ""}};
  for (const auto& [columns, line] : kCases)
    EXPECT_EQ(progress_line(numbers, columns), line) << columns;
  for (int columns = 1; columns <= 120; ++columns)
    EXPECT_LT(progress_line(numbers, columns).size(), static_cast<std::size_t>(columns));
}

TEST(Progress, ShowsNumbersThatTheProgramLogsWhereTheyFit) {
  ProgressNumbers numbers{.step = 1, .total = 2, .loss = 0.5, .rate = 10};
  numbers.logged = {{"aux", 0.25}, {"hits", 1234567}};
  EXPECT_TRUE(contains(progress_line(numbers, 120),
                       "  loss 0.5000  aux 0.25  hits 1.235e+06  10 samples/s"));
  EXPECT_FALSE(contains(progress_line(numbers, 50), "aux"));
}

// One step is ten times as fast as the others.
TEST(Progress, ShowsTheRateOfTheLastSteps) {
  testing::internal::CaptureStdout();
  {
    Progress progress(ProgressStyle::kBar, 21);
    for (std::int64_t step = 1; step <= 20; ++step)
      progress.show({.step = step, .loss = 1, .samples_per_s = 100, .seconds = 1});
    progress.show({.step = 21, .loss = 1, .samples_per_s = 1000, .seconds = 0.1});
  }
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find("  110 samples/s"), std::string::npos) << shown;
}

}  // namespace
}  // namespace torchbridge::train
