#include "trainer_template/runtime/output/progress.h"

#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

TEST(Progress, ShowsTheRemainingTime) {
  const std::pair<double, const char*> kCases[] = {{0, "0:00"},        {-1, "0:00"},       {7.4, "0:07"},
                                                   {59.6, "1:00"},     {723, "12:03"},     {3599, "59:59"},
                                                   {10800, "3:00:00"}, {90061, "25:01:01"}};
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
  ASSERT_EQ(std::sscanf(shown.c_str() + left, "samples/s %d:%d left", &minutes, &seconds), 2) << shown;
  EXPECT_LE(60 * minutes + seconds, passed / 4 * 400 + 1);
}

TEST(Progress, CountsTokensWhereTheTaskDoes) {
  const StepMetrics images{.step = 4, .loss = 1, .samples_per_s = 100};
  StepMetrics tokens = images;
  tokens.tokens_per_s = 6400;
  EXPECT_NE(bar_of(images, 4).find("loss 1.0000  100 samples/s\x1b[K"), std::string::npos) << bar_of(images, 4);
  EXPECT_NE(bar_of(tokens, 4).find("loss 1.0000  6400 tokens/s\x1b[K"), std::string::npos) << bar_of(tokens, 4);
  const std::string half = bar_of(tokens, 8);
  EXPECT_NE(half.find("step 4/8  epoch 0  loss 1.0000  6400 tokens/s  0:00 left\x1b[K"), std::string::npos) << half;
}

}  // namespace
}  // namespace torchbridge::train
