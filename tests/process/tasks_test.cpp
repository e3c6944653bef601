// The trainer's tasks and what its loop offers, as a user calls it.
#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

const std::vector<int> kOneGood = {0}, kTwoGood = {0, 0};
const Words kTinyText = {
    "--task", "text", "--model", "gpt:layers=1,heads=2,width=32,context=16", "--batch-size", "8"};

Words joined(Words command, const Words& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// Of a trace of torch's profiler.
struct Span {
  std::string name;
  std::int64_t thread;
  double begin, end;
  bool is_within(const Span& other) const {
    return thread == other.thread && other.begin <= begin && end <= other.end;
  }
};

std::vector<Span> spans_of(const std::string& text) {
  const auto trace = nlohmann::json::parse(text);
  std::vector<Span> spans;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X" || !event.at("tid").is_number()) continue;
    const double begin = event.at("ts");
    spans.push_back(
        {event.at("name"), event.at("tid"), begin, begin + event.at("dur").get<double>()});
  }
  return spans;
}

class Tasks : public testing::Test {
 protected:
  // The stderr of one rank, which must fail with this code. GPUs are hidden from it.
  std::string complaint(const Words& options, int code) {
    Ranks alone(1, trainer(options), {{"CUDA_VISIBLE_DEVICES", "-1"}});
    EXPECT_EQ(alone.wait(), std::vector<int>{code}) << alone.errors();
    return alone.errors();
  }

  TemporaryFolder folder_;
};

TEST_F(Tasks, EachLearns) {
  const Words kTasks[] = {{"--task", "digits", "--epochs", "3"},
                          {"--task", "digits", "--model", "cnn:4", "--epochs", "3"},
                          joined(kTinyText, {"--max-steps", "60", "--lr", "0.01"}),
                          {"--task", "table", "--epochs", "5"},
                          {"--task", "table", "--model", "mlp:8", "--epochs", "5"}};
  for (const Words& task : kTasks) {
    SCOPED_TRACE(task[1] + " " + task.back());
    Ranks ranks(2, trainer(joined(task, {"--metrics", folder_ / "m"})));
    ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
    const auto curve = losses(folder_ / "m");
    EXPECT_LT(curve.back(), 0.9 * curve.front());
  }
}

// The default of --epochs ends no run that was asked for more steps. An epoch here is one step.
TEST_F(Tasks, EpochsLimitMaxStepsOnlyWhereTheyAreGiven) {
  struct Length {
    Words options;
    std::size_t steps;
    std::string said;  // of both options
  };
  const Length kLengths[] = {
      {{"--max-steps", "12"}, 12, ""},
      {{}, 10, ""},
      {{"--max-steps", "12", "--epochs", "3"}, 3, "--epochs ends it after step 3"},
      {{"--max-steps", "12", "--epochs", "99"}, 12, "--max-steps ends it after step 12"}};
  for (const auto& [options, steps, said] : kLengths) {
    Words words = trainer(joined({"--batch-size", "1437", "--metrics", folder_ / "m"}, options));
    std::erase(words, "--quiet");
    Ranks alone(1, words);
    ASSERT_EQ(alone.wait(), kOneGood) << alone.errors();
    EXPECT_EQ(losses(folder_ / "m").size(), steps) << alone.out(0);
    const std::string expected = said.empty() ? "parameters\n" : "parameters; " + said + "\n";
    EXPECT_TRUE(contains(alone.out(0), expected)) << alone.out(0);
  }
}

// Numbers near 1002, of which bfloat16 has only 1000 and 1004.
TEST_F(Tasks, ATablesNumbersKeepTheirPrecisionUnderAutocast) {
  std::string rows = "a,b\n";
  for (int i = 0; i < 64; ++i)
    rows += std::to_string(i % 8) + "," + std::to_string(1001.5 + i % 2) + "\n";
  folder_.write("train.csv", rows);
  folder_.write("test.csv", rows);
  const auto curve = [&](const std::string& precision) {
    Ranks alone(1, trainer({"--task", "table", "--data", folder_.path(), "--max-steps", "3",
                            "--precision", precision, "--metrics", folder_ / precision}));
    EXPECT_EQ(alone.wait(), kOneGood) << alone.errors();
    return losses(folder_ / precision);
  };
  const auto whole = curve("fp32"), half = curve("bf16");
  ASSERT_EQ(half.size(), 3u);
  ASSERT_EQ(whole.size(), 3u);
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_NEAR(half[i], whole[i], 0.05 * whole[i]) << i;
}

// Times in milliseconds, ten rows a second, and a line of them: of 32-bit floats there is one in
// two minutes.
TEST_F(Tasks, ATablesNumbersAreScaledBeforeTheyAreRounded) {
  std::string rows = "time,position\n";
  for (std::int64_t i = 0; i < 256; ++i)
    rows += std::to_string(1'764'140'400'123 + 100 * i) + "," +
            std::to_string(5'000'000'000 + 3 * i) + "\n";
  folder_.write("train.csv", rows);
  folder_.write("test.csv", rows);
  Ranks alone(1, trainer({"--task", "table", "--data", folder_.path(), "--lr", "0.05", "--epochs",
                          "20", "--metrics", folder_ / "m"}));
  ASSERT_EQ(alone.wait(), kOneGood) << alone.errors();
  EXPECT_LT(losses(folder_ / "m").back(), 1e-4);
}

// The sum of 64 times 1700000000.1 is rounded. Another value in test.csv has no effect either.
TEST_F(Tasks, AConstantColumnOfATableHasNoEffect) {
  const auto numbers = [&](const std::string& trained, const std::string& tested,
                           const std::string& odd = "") {
    for (const auto& [file, value] : {std::pair("train.csv", trained), {"test.csv", tested}}) {
      std::string rows = "constant,target\n";
      for (int i = 0; i < 64; ++i) {
        const bool is_odd = !odd.empty() && i % 2 == 1 && value == trained;
        rows += (is_odd ? odd : value) + "," + std::to_string(i % 8) + "\n";
      }
      folder_.write(file, rows);
    }
    std::filesystem::remove(folder_ / "m");
    Ranks alone(1, trainer({"--task", "table", "--data", folder_.path(), "--epochs", "2",
                            "--metrics", folder_ / "m"}));
    EXPECT_EQ(alone.wait(), kOneGood) << alone.errors();
    auto all = losses(folder_ / "m");
    const std::string text = folder_.read("m"), key = "\"eval_loss\":";
    all.push_back(std::stod(text.substr(text.rfind(key) + key.size())));
    return all;
  };
  const auto expected = numbers("0", "0");
  EXPECT_EQ(expected.size(), 5u);
  for (const char* value : {"1700000000", "1700000000.1", "1e15"}) {
    EXPECT_EQ(numbers(value, value), expected) << value;
    EXPECT_EQ(numbers(value, "1700086400"), expected) << value;
  }
  // They differ by rounding: 0.3 and 0.1 + 0.2.
  EXPECT_EQ(numbers("0.3", "0.31", "0.30000000000000004"), expected);
  EXPECT_NE(numbers("0.3", "0.31", "0.3000000001"), expected);
}

TEST_F(Tasks, LeavesOutSamplesThatCannotBeRead) {
  std::string tokens;
  for (int i = 0; i < 400; ++i)
    tokens += i == 200 ? "\xff\xff" : std::string("\1\0", 2);  // one beyond the vocabulary
  for (const char* name : {"train.bin", "val.bin"}) folder_.write(name, tokens);
  const Words command = joined(kTinyText, {"--data", folder_.path(), "--epochs", "1"});
  EXPECT_TRUE(contains(complaint(command, 1), "train.bin: byte 400: token 65535"));
  Ranks alone(1, trainer(joined(command, {"--skip-unreadable"})));
  ASSERT_EQ(alone.wait(), kOneGood) << alone.errors();
  for (const std::string set : {"training", "evaluation"})
    EXPECT_TRUE(contains(alone.errors(), " of the " + set + " set is skipped, 1 so far: "));
}

TEST_F(Tasks, GeneratesTextAndPredictsTheClassOfAnImage) {
  Ranks text(
      1, trainer(joined(kTinyText, {"--max-steps", "5", "--checkpoint-dir", folder_ / "text"})));
  ASSERT_EQ(text.wait(), kOneGood) << text.errors();
  // The model is the checkpoint's.
  Ranks generated(1, trainer({"--task", "text", "--checkpoint-dir", folder_ / "text", "--generate",
                              "And God said", "--generate-length", "40"}));
  ASSERT_EQ(generated.wait(), kOneGood) << generated.errors();
  EXPECT_EQ(generated.out(0).find("And God said"), 0u) << generated.out(0);
  EXPECT_EQ(generated.out(0).size(), std::string("And God said\n").size() + 40);
  // Without --task it is the checkpoint's.
  Ranks without_task(1, trainer({"--checkpoint-dir", folder_ / "text", "--generate", "And God said",
                                 "--generate-length", "40"}));
  ASSERT_EQ(without_task.wait(), kOneGood) << without_task.errors();
  EXPECT_EQ(without_task.out(0), generated.out(0));
  EXPECT_TRUE(contains(complaint({"--checkpoint-dir", folder_ / "text", "--predict", "x"}, 1),
                       "--predict: task 'text' does not support it: give --task digits"));
  const auto coldest = [&](const char* temperature) {
    Ranks cold(1, trainer({"--task", "text", "--checkpoint-dir", folder_ / "text", "--generate",
                           "x", "--generate-length", "5", "--temperature", temperature}));
    EXPECT_EQ(cold.wait(), kOneGood) << cold.errors();
    return cold.out(0);
  };
  EXPECT_EQ(coldest("1e-320"), coldest("0"));

  // So are its data: with these there is no text for the tokens.
  for (const char* name : {"train.bin", "val.bin"}) folder_.write(name, std::string(400, '\1'));
  Ranks tokens(1, trainer(joined(kTinyText, {"--data", folder_.path(), "--max-steps", "1",
                                             "--checkpoint-dir", folder_ / "tokens"})));
  ASSERT_EQ(tokens.wait(), kOneGood) << tokens.errors();
  EXPECT_TRUE(contains(
      complaint({"--task", "text", "--checkpoint-dir", folder_ / "tokens", "--generate", "x"}, 1),
      "tokens of '.bin' files"));

  const std::filesystem::path data = folder_ / "data";
  std::filesystem::copy(in_source("data/digits"), data);
  Ranks digits(1, trainer({"--epochs", "4", "--checkpoint-dir", folder_ / "digits", "--data",
                           data.string()}));
  ASSERT_EQ(digits.wait(), kOneGood) << digits.errors();
  std::filesystem::remove_all(data);
  Ranks predicted(1, trainer({"--checkpoint-dir", folder_ / "digits", "--predict",
                              in_source("tests/data/images/seven.png")}));
  ASSERT_EQ(predicted.wait(), kOneGood) << predicted.errors();
  EXPECT_TRUE(contains(predicted.out(0), "seven.png: 7 (")) << predicted.out(0);
  EXPECT_TRUE(contains(predicted.errors(),
                       "the checkpoint's --data " + data.string() + " does not exist: --data "))
      << predicted.errors();
  // Of a color becomes the gray that Pillow's convert("L") gave the other file.
  const auto chance_of_seven = [&](const std::string& image) {
    Ranks rank(1, trainer({"--checkpoint-dir", folder_ / "digits", "--predict",
                           in_source("tests/data/images/" + image)}));
    EXPECT_EQ(rank.wait(), kOneGood) << rank.errors();
    return rank.out(0).substr(rank.out(0).rfind(": "));
  };
  EXPECT_EQ(chance_of_seven("seven-green.png"), chance_of_seven("seven-green-as-gray.png"));
  EXPECT_TRUE(contains(complaint({"--checkpoint-dir", folder_ / "empty", "--predict", "x"}, 1),
                       "contains no checkpoint"));
}

// train.StepTest checks which samples are named, and that the model does not change.
TEST_F(Tasks, ANanLossStopsAllRanksWithOneLine) {
  Ranks stopped(2, trainer({"--lr", "1e38", "--max-steps", "9"}));
  EXPECT_EQ(stopped.wait(), (std::vector<int>{1, 1}));
  EXPECT_EQ(lines_in(stopped.errors()), 1) << stopped.errors();
  EXPECT_TRUE(contains(stopped.errors(), "trainer: rank 0: step 2: the loss is "))
      << stopped.errors();
  EXPECT_TRUE(contains(stopped.errors(), "on 2 of 2 ranks")) << stopped.errors();
}

// Once a step makes weights NaN, each later step has a NaN loss and is skipped.
TEST_F(Tasks, ARunThatSkipsAllStepsFails) {
  Ranks skipped(2, trainer({"--lr", "1e38", "--on-nan", "skip", "--max-steps", "40"}));
  EXPECT_EQ(skipped.wait(), (std::vector<int>{1, 1}));
  EXPECT_EQ(lines_in(skipped.errors()), 31) << skipped.errors();
  const std::string expected =
      ": step 31: the last 30 steps were skipped because of an infinite or NaN loss or gradient; ";
  EXPECT_TRUE(contains(skipped.errors(), expected)) << skipped.errors();
}

TEST_F(Tasks, AShortRunThatSkipsAllStepsFails) {
  const auto train = [&](const Words& words) {
    return Ranks(
        2, trainer(joined(words, {"--max-steps", "20", "--checkpoint-dir", folder_ / "runs"})));
  };
  const std::string skipped =
      " steps were skipped because of an infinite or NaN loss or gradient; lower --lr";
  Ranks none = train({"--precision", "fp16", "--loss-scale", "1e30"});
  EXPECT_EQ(none.wait(), (std::vector<int>{1, 1}));
  EXPECT_EQ(lines_in(none.errors()), 1) << none.errors();
  EXPECT_TRUE(contains(none.errors(), ": all 20" + skipped)) << none.errors();
  Ranks spoiled = train({"--lr", "1e38", "--on-nan", "skip"});
  EXPECT_EQ(spoiled.wait(), (std::vector<int>{1, 1}));
  EXPECT_EQ(lines_in(spoiled.errors()), 20) << spoiled.errors();
  EXPECT_TRUE(contains(spoiled.errors(), ": the last 19" + skipped)) << spoiled.errors();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/latest"))
      << "a restart would find all steps done";
  Ranks some = train({"--precision", "fp16", "--loss-scale", "1e9"});
  EXPECT_EQ(some.wait(), kTwoGood) << some.errors();
}

// The last step may make weights NaN: no later step has a loss that shows it.
TEST_F(Tasks, WeightsThatAreNotFiniteAreNotSavedAndFailTheRun) {
  const std::string not_saved =
      "a weight is infinite or NaN after step 1; no checkpoint is saved: lower --lr, or clip with "
      "--clip-norm";
  const Words options = {"--max-steps", "1", "--lr", "1e299", "--checkpoint-dir", folder_ / "runs"};
  EXPECT_TRUE(contains(complaint(options, 1), not_saved));
  EXPECT_TRUE(contains(complaint(joined(options, {"--checkpoint-every", "1"}), 1), not_saved));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/step-00000001"));
}

// The norm in the metrics overflows before a gradient does; without clipping that does not stop the
// run.
TEST_F(Tasks, MetricsDoNotChangeTheOutcome) {
  const Words options = {"--lr", "1e4", "--max-steps", "4"};
  const std::string without = complaint(options, 1);
  EXPECT_TRUE(contains(without, "the evaluation loss after step 4")) << without;
  EXPECT_EQ(complaint(joined(options, {"--metrics", folder_ / "curve"}), 1), without);
}

// The loop of main.cpp, checked by the profiler. The CPU's fused Adam reads its step counts, which
// are on the CPU.
TEST_F(Tasks, NoStepReadsANumberOfTheDevice) {
  const std::vector<Words> ways = {
      {"--optimizer", "adamw", "--precision", "fp16", "--clip-norm", "1", "--on-nan", "skip",
       "--metrics", folder_ / "curve"},
      {"--zero", "1", "--zero-gradients", "reduce-scatter", "--grad-accumulation", "2"},
      {"--grad-comm", "bf16", "--lr-schedule", "cosine", "--tensorboard", folder_ / "events"}};
  for (const Words& way : ways) {
    const std::string file = folder_ / "trace.json";
    Ranks ranks(2, trainer(joined(way, {"--lr", "0.001", "--max-steps", "20", "--profile", "5",
                                        "--profile-file", file})));
    ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
    const std::vector<Span> spans = spans_of(folder_.read("trace.json"));
    EXPECT_EQ(std::ranges::count_if(
                  spans, [](const Span& span) { return span.name.starts_with("step "); }),
              5);
    for (const Span& span : spans) {
      if (span.name != "aten::_local_scalar_dense" && span.name != "aten::nonzero") continue;
      const bool is_of_fused_adam = std::ranges::any_of(spans, [&](const Span& around) {
        return around.name == "aten::_fused_adamw_" && span.is_within(around);
      });
      EXPECT_TRUE(is_of_fused_adam) << way.front() << ": " << span.name;
    }
    std::filesystem::remove(file);
  }
}

// On a GPU each of them is a kernel of every parameter, or a pass over all gradients.
TEST_F(Tasks, OneRankNeitherFillsBucketsNorReducesNorChecksWhatTheNormShows) {
  const struct {
    Words options;
    std::map<std::string, int> operations;  // in three steps
  } kCases[] = {{{"--clip-norm", "1"}, {}},
                {{}, {{"aten::_amp_foreach_non_finite_check_and_unscale_", 3}}},
                {{"--grad-comm", "bf16"}, {{"torch::distributed::reducer::copy_", 3 * 4}}}};
  for (const auto& [options, operations] : kCases) {
    Ranks rank(1, trainer(joined(options, {"--max-steps", "20", "--profile", "3", "--profile-file",
                                           folder_ / "trace.json"})));
    ASSERT_EQ(rank.wait(), std::vector<int>{0}) << rank.errors();
    std::map<std::string, int> found;
    const auto trace = nlohmann::json::parse(folder_.read("trace.json"));
    for (const auto& event : trace.at("traceEvents")) {
      const std::string name = event.value("name", "");
      if (name.starts_with("torch::distributed::") || name.starts_with("c10d::") ||
          name.starts_with("aten::_amp_"))
        ++found[name];
    }
    for (const auto& [name, count] : operations) EXPECT_GE(found[name], count) << name;
    if (operations.empty()) {
      EXPECT_EQ(found, operations);
    }
    std::filesystem::remove(folder_ / "trace.json");
  }
}

// On a GPU each is at least a kernel; views, and casts to the type that a tensor has, are none.
TEST_F(Tasks, AStepOfOneRankHasFewOperationsBesideForwardBackwardAndOptimizer) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    Ranks rank(1, trainer({"--task", "table", "--model", "linear", "--optimizer", "adamw",
                           "--clip-norm", "1", "--max-steps", "20", "--precision", precision,
                           "--profile", "1", "--profile-file", folder_ / "trace.json"}));
    ASSERT_EQ(rank.wait(), kOneGood) << rank.errors();
    std::vector<Span> spans = spans_of(folder_.read("trace.json"));
    std::ranges::sort(spans, {}, [](const Span& span) { return std::pair(span.begin, -span.end); });
    const auto step = std::ranges::find_if(
        spans, [](const Span& span) { return span.name.starts_with("step "); });
    ASSERT_NE(step, spans.end());
    const std::set<std::string> none = {"detach", "slice", "to", "view"};
    std::string found, of_gradients;
    double end = 0;  // of the outermost one before
    double gradient_end = 0;
    for (const Span& span : spans) {
      const bool is_backward = span.name.starts_with("autograd::");
      if (!span.is_within(*step)) continue;
      if (span.name.ends_with(": torch::autograd::AccumulateGrad")) gradient_end = span.end;
      const bool is_operation = span.name.starts_with("aten::");
      const std::string name = span.name.substr(span.name.find("::") + 2);
      if (is_operation && span.end <= gradient_end && !none.contains(name))
        of_gradients += name + " ";
      if (span.end <= end || (!is_backward && !is_operation)) continue;
      end = span.end;
      if (is_backward)
        found.clear();
      else if (!none.contains(name))
        found += name + " ";
    }
    EXPECT_EQ(found,
              "zeros _foreach_norm stack linalg_vector_norm add reciprocal mul clamp _foreach_mul_ "
              "sub add_ full sub ne_ cat sum ne_ rsub _foreach_add_ _fused_adamw_ ");
    EXPECT_GT(gradient_end, 0);
    EXPECT_EQ(of_gradients, "");  // no copy into a bucket, which nobody reads
  }
}

TEST_F(Tasks, StopsEarlyAlsoAfterARestart) {
  const Words options = {"--lr",
                         "0",
                         "--momentum",
                         "0",
                         "--epochs",
                         "50",
                         "--eval-every",
                         "2",
                         "--checkpoint-dir",
                         folder_ / "runs"};
  Ranks first(2, trainer(joined(options, {"--early-stop", "3", "--max-steps", "4"})));
  ASSERT_EQ(first.wait(), kTwoGood) << first.errors();
  Ranks second(2, trainer(joined(options, {"--early-stop", "3"})));
  ASSERT_EQ(second.wait(), kTwoGood) << second.errors();
  // The first of four equal losses is the best.
  EXPECT_TRUE(contains(second.out(0), "trainer: 8 steps (stopped early: the lowest loss was "))
      << second.out(0);
}

TEST_F(Tasks, WritesTheStepsOfLogEveryTheEvaluatedOnesAndTheLast) {
  const auto lines = [&](const char* file) {
    std::map<std::int64_t, nlohmann::json> found;
    std::istringstream text(folder_.read(file));
    for (std::string line; std::getline(text, line);) {
      const auto record = nlohmann::json::parse(line);
      EXPECT_TRUE(found.emplace(record.at("step"), record).second) << line;
    }
    return found;
  };
  const Words options = {"--eval-every", "3"};
  Ranks whole(2, trainer(joined(options, {"--max-steps", "11", "--metrics", folder_ / "whole"})));
  expect_success(whole);
  for (const char* steps : {"5", "11"}) {
    const Words some = {
        "--max-steps",      steps,           "--log-every", "4", "--metrics", folder_ / "some",
        "--checkpoint-dir", folder_ / "runs"};
    Ranks ranks(2, trainer(joined(options, some)));
    expect_success(ranks);
  }
  const auto all = lines("whole"), some = lines("some");
  std::vector<std::int64_t> steps;
  for (const auto& [step, record] : some) {
    steps.push_back(step);
    for (const char* name : {"loss", "lr", "grad_norm"})
      EXPECT_EQ(record.at(name), all.at(step).at(name)) << step;
    const bool is_last = step == 5 || step == 11;  // of its start
    EXPECT_EQ(record.contains("eval_loss"), step % 3 == 0 || is_last) << step;
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 4, 5, 6, 8, 9, 11}));
}

TEST_F(Tasks, TensorBoardReadsTheCurve) {
  if (python().empty()) GTEST_SKIP() << "no .venv: run scripts/setup";
  // A run that ended before its first checkpoint: the next one begins again.
  Ranks lost(1, trainer({"--max-steps", "4", "--seed", "1", "--tensorboard", folder_ / "tb"}));
  ASSERT_EQ(lost.wait(), kOneGood) << lost.errors();
  for (const char* steps : {"6", "9"}) {
    Ranks ranks(2,
                trainer({"--max-steps", steps, "--eval-every", "3", "--tensorboard", folder_ / "tb",
                         "--checkpoint-dir", folder_ / "runs", "--metrics", folder_ / "m"}));
    ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
  }
  Process reader({python(), "-c", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(*(f"{e.step}:{e.value:.9g}" for e in events.Scalars("loss")))
print(*(e.step for e in events.Scalars("eval_accuracy")))
)",
                  folder_ / "tb"},
                 {}, folder_ / "reader");
  ASSERT_EQ(reader.wait(std::chrono::seconds(60)), 0) << reader.error();
  std::string expected;
  char number[64];
  const auto curve = losses(folder_ / "m");
  for (std::size_t i = 0; i < curve.size(); ++i) {
    std::snprintf(number, sizeof number, "%s%zu:%.9g", i ? " " : "", i + 1, curve[i]);
    expected += number;
  }
  EXPECT_EQ(reader.out(), expected + "\n3 6 9\n");
}

TEST_F(Tasks, TracesSteps) {
  Ranks ranks(2, trainer({"--max-steps", "15", "--profile", "3", "--profile-file",
                          folder_ / "trace.json"}));
  ASSERT_EQ(ranks.wait(), kTwoGood) << ranks.errors();
  const std::string trace = folder_.read("trace.json");
  EXPECT_TRUE(contains(trace, "\"traceEvents\""));
  EXPECT_TRUE(contains(trace, "aten::linear"));
  EXPECT_TRUE(contains(trace, "\"step 13\""));
  EXPECT_FALSE(contains(trace, "\"step 14\""));
  EXPECT_EQ(ranks.errors(), "");

  Ranks again(1, trainer({"--max-steps", "12", "--profile", "1", "--profile-file",
                          folder_ / "trace.json"}));
  ASSERT_EQ(again.wait(), kOneGood) << again.errors();
  EXPECT_TRUE(contains(again.errors(), "trace.json' is the trace of an earlier start: copied to '" +
                                           (folder_ / "trace.json.aside-1").string() + "'"));
  EXPECT_EQ(folder_.read("trace.json.aside-1"), trace);
  EXPECT_FALSE(contains(folder_.read("trace.json"), "\"step 13\""));
}

// The profiler writes the name into its JSON as it is.
TEST_F(Tasks, ATraceMayHaveAnyName) {
  const std::string folder = folder_ / "\\ \"\n\xff";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  for (const char* name : {"a\"b.json", "a\\b.json", "a\xff.json", "a\nb.json", "\u00e4 b.json"}) {
    const std::string file = folder + "/" + name;
    Ranks rank(1, trainer({"--max-steps", "12", "--profile", "1", "--profile-file", file}));
    ASSERT_EQ(rank.wait(), kOneGood) << rank.errors();
    const std::string trace = folder_.read(file);
    EXPECT_TRUE(nlohmann::json::accept(trace));
    EXPECT_TRUE(contains(trace, "\"step 11\""));
    std::filesystem::remove(file);
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "beside " << file;
  }
}

TEST_F(Tasks, ALostTraceDoesNotEndTraining) {
  // Writing fails beyond the size limit, as on a full disk.
  Ranks full(
      1, {"/bin/sh", "-c",
          "trap '' XFSZ; ulimit -f 50; exec " + in_build("bin/trainer") +
              " --max-steps 20 --profile 3 --profile-file " + (folder_ / "trace.json").string()});
  EXPECT_EQ(full.wait(), std::vector<int>{1});
  EXPECT_EQ(
      full.errors(),
      "trainer: cannot write '" + (folder_ / "trace.json").string() +
          "': is the disk full?\ntrainer: rank 0: the trace of --profile could not be written\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json"));

  const std::string earlier = "{\"schemaVersion\": 1, \"traceEvents\": []}";
  folder_.write("trace.json", earlier);
  Ranks again(
      1, {"/bin/sh", "-c",
          "trap '' XFSZ; ulimit -f 50; exec " + in_build("bin/trainer") +
              " --max-steps 20 --profile 3 --profile-file " + (folder_ / "trace.json").string()});
  EXPECT_EQ(again.wait(), std::vector<int>{1});
  EXPECT_EQ(folder_.read("trace.json"), earlier);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json.aside-1"));

  folder_.write("notes", "{\"mine\": 1}");
  EXPECT_TRUE(contains(
      complaint({"--max-steps", "20", "--profile", "3", "--profile-file", folder_ / "notes"}, 1),
      "notes': it is not a trace and would be overwritten"));
  EXPECT_EQ(folder_.read("notes"), "{\"mine\": 1}");
}

// Training may start in another folder than the next command.
TEST_F(Tasks, ACheckpointKeepsTheAbsolutePathOfItsData) {
  std::filesystem::create_directories(folder_ / "project/data");
  for (const char* each : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::filesystem::copy(in_source("data/digits/") + each, folder_ / "project/data" / each);
  }
  Ranks trained(1, {"/bin/sh", "-c",
                    "cd " + (folder_ / "project").string() + "; exec " + in_build("bin/trainer") +
                        " --quiet --data data --max-steps 1 --checkpoint-dir runs"});
  ASSERT_EQ(trained.wait(), kOneGood) << trained.errors();
  EXPECT_TRUE(contains(folder_.read("project/runs/step-00000001/manifest.json"),
                       (folder_ / "project/data").string()));
}

TEST_F(Tasks, WritesThePartialTraceOfAShortRun) {
  Ranks cut(
      1, trainer({"--max-steps", "12", "--profile", "5", "--profile-file", folder_ / "cut.json"}));
  ASSERT_EQ(cut.wait(), kOneGood) << cut.errors();
  EXPECT_TRUE(contains(folder_.read("cut.json"), "\"step 12\""));

  Ranks none(
      2, trainer({"--max-steps", "10", "--profile", "5", "--profile-file", folder_ / "none.json"}));
  ASSERT_EQ(none.wait(), kTwoGood) << none.errors();
  EXPECT_EQ(none.errors(),
            "trainer: --profile: no step was traced: tracing starts at step 11, and this run took "
            "10 steps\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.json"));
}

// The bar of the last step is on the terminal when the message is printed.
TEST_F(Tasks, MessagesBeginALineOfTheirOwnOnATerminal) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl(in_build("bin/trainer").c_str(), "trainer", "--max-steps", "2", "--profile", "5",
          "--profile-file", (folder_ / "trace.json").c_str(), nullptr);
    _exit(127);
  }
  ASSERT_GT(child, 0);
  std::string shown;
  char part[4096];
  for (ssize_t got = 0; (got = read(terminal, part, sizeof part)) > 0;)
    shown.append(part, static_cast<std::size_t>(got));  // until it is closed
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(terminal);
  EXPECT_EQ(status, 0) << shown;
  EXPECT_TRUE(contains(shown, "samples/s\x1b[K\r\ntrainer: --profile: ")) << shown;
}

// What is to be seen on a terminal after this text.
std::vector<std::string> screen(const std::string& text) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& line = lines.back();
    if (text[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (text[i] == '\r') {
      column = 0;
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      line.resize(column);
      i += 2;
    } else {
      line.resize(std::max(line.size(), column + 1));
      line[column++] = text[i];
    }
  }
  return lines;
}

// What was read until the other side is closed.
std::string rest_of(int descriptor) {
  std::string all;
  char part[4096];
  for (ssize_t got = 0; (got = read(descriptor, part, sizeof part)) > 0;)
    all.append(part, static_cast<std::size_t>(got));
  close(descriptor);
  return all;
}

// mpirun gives rank 0 its own terminal for stdout and a pipe for stderr, and forwards both to
// mpirun's terminal in any order.
TEST_F(Tasks, LinesAreWholeUnderMpirunInAnyOrder) {
  const std::string trace = folder_ / "trace.json", shown = folder_ / "shown";
  const auto write_shown = [&](const std::string& name, const std::string& text) {
    std::ofstream(shown + name, std::ios::binary) << text;
  };
  int terminal = -1;
  const pid_t launcher = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (launcher == 0) {
    int ours = -1, ranks = -1, errors[2];
    if (openpty(&ours, &ranks, nullptr, nullptr, nullptr) != 0 || pipe(errors) != 0) _exit(126);
    if (fork() == 0) {
      setsid();
      dup2(ranks, STDOUT_FILENO);
      dup2(errors[1], STDERR_FILENO);
      close(ours), close(ranks), close(errors[0]), close(errors[1]);
      execl(in_build("bin/trainer").c_str(), "trainer", "--max-steps", "2", "--profile", "5",
            "--profile-file", trace.c_str(), nullptr);
      _exit(127);
    }
    close(ranks), close(errors[1]);
    write_shown(".out", rest_of(ours));  // less than the pipe holds
    write_shown(".err", rest_of(errors[0]));
    int status = -1;
    wait(&status);
    _exit(WEXITSTATUS(status));
  }
  ASSERT_GT(launcher, 0);
  EXPECT_EQ(rest_of(terminal), "");
  int status = -1;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(status, 0);
  const std::string out = folder_.read("shown.out"), errors = folder_.read("shown.err");
  EXPECT_TRUE(contains(errors, "samples/s\x1b[K")) << errors;
  for (const std::string& text : {out + errors, errors + out}) {
    const std::vector<std::string> lines = screen(text);
    for (const char* begin : {"trainer: --profile: ", "trainer: 2 steps, "})
      EXPECT_EQ(std::ranges::count_if(
                    lines, [&](const std::string& line) { return line.starts_with(begin); }),
                1)
          << text;
    EXPECT_EQ(lines.back(), "") << text;
  }
}

TEST_F(Tasks, FailsWhenItsOutputCannotBeWritten) {
  Ranks trained(
      1, trainer(joined(kTinyText, {"--max-steps", "1", "--checkpoint-dir", folder_ / "text"})));
  ASSERT_EQ(trained.wait(), kOneGood) << trained.errors();
  const Words generate = trainer({"--task", "text", "--checkpoint-dir", folder_ / "text",
                                  "--generate", "x", "--generate-length", "1"});
  Process full(joined({"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full"}, generate), {},
               folder_ / "full");
  EXPECT_EQ(full.wait(std::chrono::seconds(60)), 1);
  EXPECT_TRUE(contains(full.error(), "cannot write to stdout")) << full.error();
}

TEST_F(Tasks, ATrainingWhoseOutputIsLostCompletesAndFails) {
  const Words train = {in_build("bin/trainer"), "--max-steps", "3",          "--checkpoint-dir",
                       folder_ / "runs",        "--metrics",   folder_ / "m"};
  Process full(joined({"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full"}, train), {},
               folder_ / "full");
  EXPECT_EQ(full.wait(std::chrono::seconds(60)), 1);
  EXPECT_EQ(full.error(), "trainer: rank 0: cannot write to stdout: is the disk full?\n");
  EXPECT_EQ(losses(folder_ / "m").size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/step-00000003/DONE"));
  // The program behind a pipe has ended.
  Process unread(
      joined({"/bin/bash", "-c", "exec {pipe}> >(:); wait $!; exec \"$0\" \"$@\" >&$pipe"},
             {in_build("bin/trainer"), "--max-steps", "1"}),
      {}, folder_ / "unread");
  EXPECT_EQ(unread.wait(std::chrono::seconds(60)), 1);
  EXPECT_EQ(unread.error(), "trainer: rank 0: cannot write to stdout: nobody reads it any more\n");
  Process help(joined({"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full"},
                      {in_build("bin/trainer"), "--help"}),
               {}, folder_ / "help");
  EXPECT_EQ(help.wait(std::chrono::seconds(60)), 1);
  EXPECT_TRUE(contains(help.error(), "cannot write to stdout")) << help.error();
}

// The first file that it opens would be its standard output, and have the table of its options.
TEST_F(Tasks, ATrainingThatIsStartedWithClosedStreamsWritesThemToNoFile) {
  for (const std::string closed : {">&-", "<&- >&-", "<&- >&- 2>&-"}) {
    const std::string folder = folder_ / closed;
    const Words train = {in_build("bin/trainer"), "--max-steps",    "3",
                         "--checkpoint-dir",      folder + "/runs", "--metrics",
                         folder + "/m",           "--sample-log",   folder + "/samples"};
    std::filesystem::create_directories(folder);
    Process process(joined({"/bin/sh", "-c", "exec \"$0\" \"$@\" " + closed}, train), {},
                    folder + "/output");
    EXPECT_EQ(process.wait(std::chrono::seconds(60)), 0) << process.error();
    EXPECT_TRUE(std::filesystem::exists(folder + "/runs/step-00000003/DONE")) << closed;
    for (const char* file : {"/m", "/samples", "/runs/.lock"}) {
      const std::string text = folder_.read(closed + file);
      EXPECT_EQ(text.find("batch-size"), std::string::npos) << file << ": " << text;
    }
    EXPECT_EQ(losses(folder + "/m").size(), 3u) << closed;
  }
}

// Compiling takes half a minute: with TORCHBRIDGE_COMPLETE=1.
TEST_F(Tasks, EvaluatesByACompiledPackageWithItsOwnWeights) {
  if (!getenv("TORCHBRIDGE_COMPLETE")) GTEST_SKIP() << "TORCHBRIDGE_COMPLETE=1 runs it";
  const std::string package = folder_ / "model.pt2";
  Process compile({python(), in_source("tests/reference/compile_model.py"), "32", package}, {},
                  folder_ / "compile");
  ASSERT_EQ(compile.wait(std::chrono::seconds(300)), 0) << compile.error();
  const Words options = {"--model", "mlp:32", "--max-steps", "40", "--eval-every", "10"};
  Ranks eager(2, trainer(options)),
      compiled(2, trainer(joined(options, {"--compiled-eval", package})));
  ASSERT_EQ(eager.wait(), kTwoGood) << eager.errors();
  ASSERT_EQ(compiled.wait(), kTwoGood) << compiled.errors();
  const auto result = [](const std::string& line) {
    return line.substr(0, line.find(" samples/s")).substr(0, line.rfind(", "));
  };
  EXPECT_EQ(result(compiled.out(0)), result(eager.out(0)));
  const std::string errors =
      complaint({"--model", "mlp:32,16", "--compiled-eval", package, "--max-steps", "1"}, 1);
  EXPECT_TRUE(contains(errors, "model.pt2")) << errors;
}

// Options that no task looks at: CommandLine.RejectsOptions.
TEST_F(Tasks, BadInputGetsOneLineThatNamesIt) {
  folder_.write("empty.txt", "");
  folder_.write("short.txt", "too short");
  folder_.write("train.csv", "a,b\n1,2\n");
  ASSERT_EQ(mkfifo((folder_ / "device").c_str(), 0600), 0);
  folder_.write("test.csv", "a,b,c\n1,2,3\n");
  const struct {
    Words options;
    int code;
    const char* named;
  } kCases[] = {
      {{"--task", "tezt"}, 2, "did you mean 'text'?"},
      {{"--task", "text", "--model", "gpt:layers=2,heads=2,layers=3"},
       2,
       "'layers' is given twice"},
      {{"--task", "text", "--model", "gpt:tiny,layer=3"}, 2, "did you mean 'layers'?"},
      {{"--task", "text", "--model", "gpt:tiny,small"}, 2, "the preset 'small' must come first"},
      {{"--task", "text", "--model", "mlp:3"}, 2, "expected gpt:PRESET"},
      {{"--task", "text", "--model", "gpt:tiny,heads=3"},
       2,
       "width 128 is not a multiple of the 3 heads"},
      {{"--task", "table", "--model", "cnn:3"}, 2, "expected linear"},
      {{"--model", "mlp:0"}, 2, "mlp:0"},
      {{"--task", "text", "--data", folder_ / "empty.txt"}, 1, "empty.txt"},
      {{"--task", "text", "--data", folder_ / "short.txt"}, 1, "short.txt: has 9 bytes"},
      {{"--task", "text", "--data", folder_.path()}, 1, "train.bin"},
      {{"--task", "digits", "--data", folder_ / "short.txt"}, 1, "short.txt' is not a folder"},
      {{"--model", "cnn:4,4,4,4", "--batch-size", "4", "--epochs", "1"},
       1,
       "step 360: the model rejects a batch of 1 sample: Expected more than 1 value"},
      {{"--task", "table", "--data", folder_.path()}, 1, "train.csv has 2 columns, test.csv 3"},
      {{"--model", "mpl:3"}, 2, "did you mean 'mlp'?"},
      {{"--task", "table", "--model", "linaer"}, 2, "did you mean 'linear'?"},
      {{"--model", "cnn:65536,65536"}, 1, "--model cnn:65536,65536 cannot be made"},
      {{"--task", "text", "--generate", "x"}, 2, "--checkpoint-dir"},
      // Rejected before the checkpoint, which does not exist, is read.
      {{"--task", "digits", "--checkpoint-dir", "/none", "--generate", "x"},
       2,
       "--generate: task 'digits' does not support it: give --task text"},
      {{"--task", "table", "--init-from", "/none", "--predict", "x"},
       2,
       "--predict: task 'table' does not support it: give --task digits"},
      {{"--profile", "1", "--profile-file", folder_ / "device"},
       1,
       "device': it is not a regular file"},
      {{"--device", "cuda"}, 1, "GPU"},
  };
  for (const auto& c : kCases) {
    const std::string errors = complaint(c.options, c.code);
    EXPECT_EQ(lines_in(errors), 1) << errors;
    EXPECT_TRUE(contains(errors, c.named)) << errors;
  }
}

}  // namespace
