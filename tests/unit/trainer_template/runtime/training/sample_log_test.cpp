#include "trainer_template/runtime/training/sample_log.h"

#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {
namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

FinishedStep finished(std::int64_t step, const Batches& samples) {
  return {.record = {.step = step}, .samples = samples, .numbers = {}};
}

TEST(SampleLog, HasALineForEachBatchOfAStep) {
  const std::vector<std::string> ranks = {samples_text(Batches({{5, 1}, {8}})),
                                          samples_text(Batches({{4, 9}, {2}}))};
  const auto lines = sample_log_lines({.step = 7, .epoch = 3}, ranks);
  EXPECT_EQ(lines, (std::vector<std::string>{R"({"step":7,"epoch":3,"samples":[[5,1],[4,9]]})",
                                             R"({"step":7,"epoch":3,"samples":[[8],[2]]})"}));
  EXPECT_EQ(sample_log_lines({.step = 7, .skipped = true}, std::vector<std::string>{"5"}).front(),
            R"({"step":7,"epoch":0,"skipped":true,"samples":[[5]]})");
}

TEST(SampleLog, DropsTheStepsAfterTheCheckpoint) {
  TemporaryFolder folder;
  const auto path = folder / "sample_log";
  for (std::int64_t step : {1, 2, 3})
    SampleLog(alone(), path, {.step = step - 1}).read(finished(step, {{step}, {step + 10}}));
  SampleLog(alone(), path, {.step = 1}).read(finished(2, {{7}}));
  EXPECT_EQ(folder.read("sample_log"), R"({"step":1,"epoch":0,"samples":[[1]]})"
                                       "\n"
                                       R"({"step":1,"epoch":0,"samples":[[11]]})"
                                       "\n"
                                       R"({"step":2,"epoch":0,"samples":[[7]]})"
                                       "\n");
}

}  // namespace
}  // namespace torchbridge::train
