#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/options.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/options/option_suggestions.h"

namespace torchbridge::train {
namespace {

const TaskRegistration kKinds[] = {{.name = "none",
                                    .summary = "",
                                    .models = "",
                                    .defaults = {},
                                    .check_model = [](const std::string&) {},
                                    .open = {}}};

Options parsed(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), kKinds);
}

// All that --optimizer takes.
std::string optimizers(const std::string& separator) {
  std::string names;
  for (const OptimizerKind& kind : optimizer_kinds())
    names += (names.empty() ? "" : separator) + kind.name;
  return names;
}

// The names that lines of --help begin with.
std::set<std::string> options_in_help() {
  std::set<std::string> names;
  try {
    parsed({"trainer", "--help"});
  } catch (const EarlyExit& help) {
    std::istringstream lines(help.what());
    for (std::string line, name; std::getline(lines, line);) {
      if (line.starts_with("  --") && std::istringstream(line) >> name) names.insert(name);
    }
  }
  for (const char* other : {"--config", "--print-config", "--version"})
    names.erase(other);  // these have no value in a run
  return names;
}

TEST(CommandLine, EachOptionHasARuleForRanksThatDiffer) {
  std::set<std::string> names;
  for (const auto& [name, option] : parsed({"trainer"}).chosen) names.insert(name);
  EXPECT_GT(names.size(), 50u);
  EXPECT_EQ(names, options_in_help());
}

TEST(CommandLine, ShowsValuesAsTheRanksCompareThem) {
  const Options options =
      parsed({"trainer", "--lr", "1e-1", "--no-decay", "a,b", "--deterministic", "--optimizer",
              "adamw", "--resume", "/runs/a", "--predict", "/w", "--on-pending-save", "skip"});
  const std::pair<const char*, const char*> kValues[] = {{"--lr", "0.1"},
                                                         {"--no-decay", "a,b"},
                                                         {"--deterministic", "yes"},
                                                         {"--no-decay-1d", "no"},
                                                         {"--weight-decay", "0.01"},
                                                         {"--resume", "a path"},
                                                         {"--predict", "set"},
                                                         {"--checkpoint-dir", "not set"},
                                                         {"--on-pending-save", "skip"},
                                                         {"--epochs", "10"},
                                                         {"--generate", ""}};
  for (const auto& [name, value] : kValues) EXPECT_EQ(options.chosen.at(name).value, value) << name;
  EXPECT_EQ(parsed({"trainer", "--init-from", "/w"}).chosen.at("--init-from").value, "set");
}

TEST(CommandLine, TheLastValueOfARepeatedOptionIsUsed) {
  const Options options =
      parsed({"trainer", "--checkpoint-every", "100", "--no-decay", "a,b", "--quiet", "--no-decay",
              "c", "--checkpoint-every=50", "--quiet=false"});
  EXPECT_EQ(options.checkpoints.every, 50);
  EXPECT_EQ(options.no_decay, std::vector<std::string>{"c"});
  EXPECT_FALSE(options.quiet);
}

std::string complaint(std::vector<std::string> words) {
  words.insert(words.begin(), "trainer");
  try {
    parsed(words);
  } catch (const EarlyExit& exit) {
    return exit.code == ExitCode::kBadOptions ? exit.what() : "";
  }
  return "";
}

TEST(CommandLine, SuggestsTheNearestOption) {
  for (const std::string& name : options_in_help()) {
    const std::string wrong = name + "x";
    EXPECT_EQ(complaint({wrong, "1"}),
              "unknown option '" + wrong + "'; did you mean '" + name + "'? (see --help)");
  }
}

TEST(CommandLine, SuggestsOurOptionForNamesOfOtherTrainers) {
  const std::set<std::string> names = options_in_help();
  for (const OptionSuggestion& other : kSuggestedOptions) {
    const std::string ours = "--" + std::string(other.ours);
    EXPECT_TRUE(names.contains(ours) || ours == "--config") << ours;
    EXPECT_EQ(complaint({"--" + std::string(other.theirs) + "=1"}),
              "unknown option '--" + std::string(other.theirs) + "'; did you mean '" + ours +
                  "'? (see --help)");
  }
  EXPECT_EQ(complaint({"--learning_rate", "0.1"}),
            "unknown option '--learning_rate'; did you mean '--lr'? (see --help)");
  EXPECT_EQ(complaint({"--Lr", "0.1"}), "unknown option '--Lr'; did you mean '--lr'? (see --help)");
  EXPECT_TRUE(complaint({"--optimizer", "adamW"}).ends_with("did you mean 'adamw'? (see --help)"));
  EXPECT_EQ(complaint({"--optimizer.lr", "0.1"}),
            "unknown option '--optimizer.lr'; did you mean '--lr'? (see --help)");
}

// A file for --config, and the error about it: "" if it is valid.
class ConfigFile : public testing::Test {
 protected:
  std::vector<std::string> with(const std::string& text, std::vector<std::string> more = {}) {
    folder_.write("run.toml", text);
    more.insert(more.begin(), {"trainer", "--config", path()});
    return more;
  }
  std::string complaint_of(const std::string& text) {
    std::vector<std::string> words = with(text);
    words.erase(words.begin());
    return complaint(words);
  }
  std::string path() const { return (folder_ / "run.toml").string(); }

  TemporaryFolder folder_;
};

TEST_F(ConfigFile, IsTomlAndTheCommandLineOverridesIt) {
  const Options options = parsed(with(R"(lr = 0.5  # a comment
epochs = 1_000
"momentum" = 5e-1
no-decay = [
  "a", 'b',  # over several lines
]
metrics = """
run"""
generate = "\u00e9"
checkpoint-dir = "runs"
quiet = true
batch-size = 8
)",
                                      {"--batch-size", "16"}));
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_EQ(options.epochs, 1000);
  EXPECT_EQ(options.momentum, 0.5);
  EXPECT_EQ(options.no_decay, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.metrics, "run");
  EXPECT_EQ(options.generate, "\xc3\xa9");
  EXPECT_TRUE(options.quiet);
  EXPECT_EQ(options.batch_size, 16);
}

TEST_F(ConfigFile, ErrorsNameFileAndLine) {
  const struct {
    const char* text;
    int line;
    std::string expected;
  } kCases[] = {
      {"epochs = 2\nlr = 0.002,\n", 2,
       "'lr = 0.002,': Error while parsing key-value pair: expected a comment or whitespace, saw "
       "','"},
      {"x\n", 1, "'x': Error while parsing"},
      {"lr = 0.1\n\nlr = 0.2\n", 3, "cannot redefine"},
      {"# first\nlerning-rate = 0.1\n", 2, "unknown key 'lerning-rate'; did you mean 'lr'?"},
      {"max_iters = 100\n", 1, "unknown key 'max_iters'; did you mean 'max-steps'?"},
      {"config = 'other.toml'\n", 1, "unknown key 'config' (see --help)"},
      {"lr = 0.1\n[training]\nepochs = 2\n", 2,
       "section [training] is not supported: write all keys at the top level"},
      {"epochs = 1\nlr = 'fast'\n", 2, "lr: 'fast': expected a number"},
      {"optimizer = 'adma'\n", 1,
       "optimizer: 'adma': expected one of " + optimizers(", ") + "; did you mean 'adam'?"},
      {"epochs = 2.5\n", 1, "epochs: '2.5': expected a whole number of at least 1"},
      {"lr = [0.1, 0.2]\n", 1, "lr: expected one value, not a list"},
      {"lr = 1979-05-27\n", 1,
       "'lr': expected a number, true, false, a quoted string, or a list of these"},
      {"quiet = 'maybe'\n", 1, "quiet: 'maybe': expected true or false"},
      {"deterministic = 7\n", 1, "deterministic: '7': expected true or false"},
      {"taks = 'text'\n", 1, "unknown key 'taks'; did you mean 'task'?"},
      {"a\x01\xff\n", 1, "'a\\x01\\xff': Encountered invalid utf-8"},
  };
  for (const auto& [text, line, expected] : kCases) {
    const std::string errors = complaint_of(text);
    EXPECT_TRUE(errors.starts_with(path() + ":" + std::to_string(line) + ": ")) << errors;
    EXPECT_NE(errors.find(expected), std::string::npos) << errors;
  }
  EXPECT_EQ(complaint({"--config", folder_.path().string()}),
            "--config: cannot read '" + folder_.path().string() + "': Is a directory (see --help)");
  EXPECT_EQ(complaint({"--config", "/none.toml"}),
            "--config: cannot read '/none.toml': No such file or directory (see --help)");
}

std::string printed_config(std::vector<std::string> words) {
  words.push_back("--print-config");
  try {
    parsed(words);
  } catch (const EarlyExit& exit) {
    return exit.code == ExitCode::kDone ? exit.what() : "";
  }
  return "";
}

TEST_F(ConfigFile, IsNotPrintedWithBytesThatItCannotHave) {
  EXPECT_EQ(complaint({"--print-config", "--checkpoint-dir", "a\xff\"b"}),
            "--print-config: --checkpoint-dir 'a\\xff\"b' is not UTF-8, as a file for --config is");
}

TEST_F(ConfigFile, IsPrintedAndReadBackUnchanged) {
  const std::vector<std::string> words = {"trainer",
                                          "--lr",
                                          "1e-05",
                                          "--no-decay",
                                          "a,b",
                                          "--weight-decay",
                                          "0.25",
                                          "--metrics",
                                          "a \"b\" \\ \t'c",
                                          "--quiet",
                                          "--seed",
                                          "9223372036854775807",
                                          "--checkpoint-dir",
                                          "/runs",
                                          "--peak-tflops",
                                          "1e+299",
                                          "--temperature",
                                          "0"};
  const std::string printed = printed_config(words);
  const auto [before, again] = std::pair(parsed(words), parsed(with(printed)));
  for (const auto& [name, option] : before.chosen)
    EXPECT_EQ(again.chosen.at(name).value, option.value) << name;
  EXPECT_EQ(again.checkpoints.folder, before.checkpoints.folder);
  EXPECT_EQ(printed_config(with(printed)), printed);

  // Each option has a line of its own below its text; where it is not set, as a comment, and with
  // the default that yields to another option.
  EXPECT_NE(printed.find("\n# Learning rate\nlr = 1e-05\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("\n# Optimizer (" + optimizers("|") + ")\noptimizer = \"sgd\"\n"),
            std::string::npos);
  for (const std::string& name : options_in_help()) {
    const std::string key = name.substr(2);
    const std::string comment = "\n# " + key + (key == "epochs" ? " = 10\n" : " =\n");
    EXPECT_TRUE(printed.find("\n" + key + " = ") != std::string::npos ||
                printed.find(comment) != std::string::npos)
        << key;
  }
}

// A file that gives --epochs, which nobody gave, would end a run before --max-steps.
TEST_F(ConfigFile, LeavesOutADefaultThatYieldsToAnotherOption) {
  const std::string printed = printed_config({"trainer", "--max-steps", "1000"});
  EXPECT_NE(printed.find("\n# epochs = 10\n"), std::string::npos) << printed;
  EXPECT_FALSE(parsed(with(printed)).ends_by_epochs());
  EXPECT_FALSE(parsed(with(printed_config({"trainer"}), {"--max-steps", "1000"})).ends_by_epochs());
  EXPECT_TRUE(parsed(with(printed_config({"trainer"}))).ends_by_epochs());
  const Options both =
      parsed(with(printed_config({"trainer", "--max-steps", "1000", "--epochs", "3"})));
  EXPECT_TRUE(both.ends_by_epochs());
  EXPECT_EQ(both.epochs, 3);
}

TEST(CommandLine, ShownOptionsAreAlsoInCheckpoints) {
  const Options options = parsed({"trainer", "--optimizer", "adamw", "--data", "."});
  EXPECT_EQ(options.checkpoints.shown, options.shown());
  EXPECT_EQ(options.shown().at("weight-decay"), "0.01");
  EXPECT_EQ(options.shown().at("data"),
            (std::filesystem::current_path() / ".").lexically_normal().string());
  EXPECT_FALSE(options.shown().contains("metrics"));
}

TEST(CommandLine, RejectsOptions) {
  const struct {
    std::vector<std::string> words;
    std::string expected;
  } kCases[] = {
      {{"--bogus"}, "--bogus"},
      {{"--backend", "cpu:"}, "'cpu:' is not DEVICE:NAME"},
      {{"--device", "tpu"}, "--device"},
      {{"--device", "cpu", "--backend", "nccl"}, "--backend: nccl needs a GPU: give --device cuda"},
      {{"--batch-size", "0"}, "--batch-size"},
      {{"--epochs", "-1"}, "--epochs"},
      {{"--lr", "fast"}, "'fast': expected a number"},
      {{"--lr", "nan"}, "'nan': expected a number"},
      {{"--task", "texts"}, "--task"},
      {{"--order", "random"}, "--order"},
      {{"--optimizer", "lion"}, "--optimizer"},
      {{"--lr-schedule", "linear"}, "--lr-schedule: 'linear': expected one of constant, step,"},
      {{"--lr-schedule", "step:size=3"}, "'size' is not a key of step; expected step_size, gamma"},
      {{"--lr-schedule", "plateau"}, "give --eval-every"},
      {{"--clip-norm", "-1"}, "'-1': expected a number of at least 0"},
      {{"--grad-accumulation", "0"}, "--grad-accumulation"},
      {{"--precision", "fp8"}, "--precision"},
      {{"--zero", "3"}, "--zero"},
      // Empty values, as of an unset variable.
      {{"--config", ""}, "--config: the value is empty"},
      {{"--checkpoint-dir", ""}, "--checkpoint-dir: the value is empty"},
      {{"--checkpoint-dir=", "--zero", "0"}, "--checkpoint-dir: the value is empty"},
      {{"--init-from", ""}, "--init-from: the value is empty"},
      {{"--metrics", ""}, "--metrics: the value is empty"},
      {{"--sample-log", ""}, "--sample-log: the value is empty"},
      {{"--tensorboard", ""}, "--tensorboard: the value is empty"},
      {{"--profile-file", ""}, "--profile-file: the value is empty"},
      {{"--profile", "1", "--profile-file", "curve", "--metrics", "./curve"},
       "--profile-file: 'curve' is the file of --metrics"},
      {{"--profile", "1", "--sample-log", "trace.json"},
       "--profile-file: 'trace.json' is the file of --sample-log"},
      {{"--lr-schedule", "cosine:eta_min=0,eta_min=1"}, "eta_min is given twice"},
      {{"--lr-schedule", "cosin"}, "did you mean 'cosine'?"},
      {{"--epoch", "3"}, "did you mean '--epochs'?"},
      {{"--seed", "-1"}, "--seed"},
      {{"--data", ""}, "--data"},
      {{"--early-stop", "2"}, "--eval-every"},
      {{"--generate", ""}, "--generate: the value is empty"},
      {{"--predict", ""}, "--predict: the value is empty"},
      {{"--timeout", "nan"}, "--timeout: 'nan'"},
      {{"--resume", "/runs/a", "--init-from", "/w"},
       "--init-from: --resume /runs/a has weights too: give one of the two"},
      {{"--deterministic=perhaps"}, "--deterministic: 'perhaps': expected true or false"},
  };
  for (const auto& [words, expected] : kCases) {
    const std::string error = complaint(words);
    EXPECT_NE(error.find(expected), std::string::npos)
        << "'" << error << "', expected '" << expected << "'";
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(CommandLine, RejectsConflictingOptions) {
  EXPECT_EQ(complaint({"--cudnn-benchmark", "--deterministic"}),
            "--cudnn-benchmark: the fastest algorithm may differ from run to run: leave out this "
            "or --deterministic "
            "(see --help)");
  const std::vector<std::string> scattered = {"--grad-comm", "bf16", "--zero-gradients",
                                              "reduce-scatter"};
  EXPECT_EQ(complaint(scattered), "");  // without --zero 1 it means nothing
  EXPECT_EQ(
      complaint({"--zero", "1", scattered[0], scattered[1], scattered[2], scattered[3]}),
      "--grad-comm: bf16 is for DDP's all-reduce, which --zero-gradients reduce-scatter replaces: "
      "give --zero-gradients all-reduce (see --help)");
}

TEST(CommandLine, NamesOptionsThatHaveNoEffect) {
  const struct {
    std::vector<std::string> words, with_effect;
    std::string expected;
  } kCases[] = {
      {{"--momentum", "0.5", "--optimizer", "adamw"},
       {"--optimizer", "sgd"},
       "--momentum has no effect with --optimizer adamw"},
      {{"--momentum", "0.5", "--lr-schedule", "one-cycle"},
       {"--lr-schedule", "one-cycle:cycle_momentum=false"},
       "--momentum has no effect with --lr-schedule one-cycle, which sets it unless "
       "cycle_momentum"},
      {{"--no-decay-1d"},
       {"--weight-decay", "0.1"},
       "--no-decay-1d has no effect with a weight decay of 0"},
      {{"--loss-scale", "8"}, {"--precision", "fp16"}, "without --precision fp16"},
      {{"--max-skips", "8"}, {"--on-nan", "skip"}, "without --on-nan skip or --precision fp16"},
      {{"--zero-gradients", "all-reduce"}, {"--zero", "1"}, "without --zero 1"},
      {{"--checkpoint-every", "5"}, {"--checkpoint-dir", "c"}, "--checkpoint-every has no effect"},
      {{"--on-pending-save", "skip", "--checkpoint-dir", "c"},
       {"--async-save"},
       "--on-pending-save has no effect without --async-save"},
      {{"--profile-file", "x"},
       {"--profile", "1"},
       "--profile-file has no effect without --profile"},
      {{"--temperature", "1"}, {}, "--temperature has no effect without --generate"},
  };
  for (auto [words, with_effect, expected] : kCases) {
    words.insert(words.begin(), "trainer");
    const std::vector<std::string> lines = parsed(words).without_effect;
    ASSERT_EQ(lines.size(), 1u) << expected;
    EXPECT_NE(lines[0].find(expected), std::string::npos) << lines[0];
    if (with_effect.empty()) continue;
    words.insert(words.end(), with_effect.begin(), with_effect.end());
    EXPECT_EQ(parsed(words).without_effect, std::vector<std::string>());
  }
  EXPECT_EQ(parsed({"trainer"}).without_effect, std::vector<std::string>());
  // A file that gives each option its default.
  TemporaryFolder folder;
  try {
    parsed({"trainer", "--print-config"});
  } catch (const EarlyExit& printed) {
    folder.write("all.toml", printed.what());
  }
  EXPECT_EQ(parsed({"trainer", "--config", folder / "all.toml"}).without_effect,
            std::vector<std::string>());
}

TEST(CommandLine, GradCommImpliesDdpsAllReduce) {
  EXPECT_EQ(parsed({"trainer", "--zero", "1"}).gradient_average(), GradientAverage::kAuto);
  EXPECT_EQ(parsed({"trainer", "--zero", "1", "--grad-comm", "bf16"}).gradient_average(),
            GradientAverage::kDdp);
}

TEST(CommandLine, JoinTimeoutIsLongerWithAGpu) {
  using std::chrono::seconds;
  const auto time_to_join = [](std::vector<std::string> words) {
    words.insert(words.begin(), "trainer");
    return parsed(words).group().time_to_join();
  };
  EXPECT_EQ(time_to_join({}), seconds(60));
  EXPECT_EQ(time_to_join({"--device", "cuda"}), seconds(300));
  EXPECT_EQ(time_to_join({"--backend", "nccl"}), seconds(300));
  EXPECT_EQ(time_to_join({"--device", "cuda", "--join-timeout", "90"}), seconds(90));
  EXPECT_EQ(time_to_join({"--timeout", "20"}), seconds(20));
  EXPECT_EQ(time_to_join({"--timeout", "200", "--join-timeout", "400"}), seconds(200));
}

TEST(CommandLine, ATaskHasSchedulesOfItsOwn) {
  TaskRegistration own = kKinds[0];
  own.name = "own";
  own.defaults = {{"--lr-schedule", "halves"}};
  own.lr_schedules = {{"halves", [](std::int64_t, std::int64_t) { return 0.5; }}};
  static const TaskRegistration kinds[] = {kKinds[0], own};
  const auto parse = [](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), kinds);
  };
  const Options options = parse({"trainer", "--task", "own"});
  EXPECT_EQ(options.shown().at("lr-schedule"), "halves");
  EXPECT_EQ(learning_rate(options.schedule(100), 0.5, 1), 0.25);
  try {
    parse({"trainer", "--lr-schedule", "halves"});
    FAIL() << "the other task's schedule was taken";
  } catch (const EarlyExit& exit) {
    EXPECT_TRUE(contains(exit.what(), "--lr-schedule: 'halves': expected one of constant, "))
        << exit.what();
  }
}

TEST(CommandLine, ATaskHasOptionsOfItsOwn) {
  static double smoothing = 0.5;
  static const TaskRegistration kinds[] = {{.name = "own",
                                            .summary = "",
                                            .models = "",
                                            .defaults = {},
                                            .check_model = [](const std::string&) {},
                                            .open = {},
                                            .declare_options =
                                                [](OptionTable& table) {
                                                  table.add("--smoothing", &smoothing,
                                                            "Of the targets", {.is_shown = true});
                                                }}};
  std::vector<std::string> words = {"trainer", "--smoothing", "0.25"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const Options options =
      parse_command_line(static_cast<int>(arguments.size()), arguments.data(), kinds);
  EXPECT_EQ(smoothing, 0.25);
  EXPECT_EQ(options.shown().at("smoothing"), "0.25");
  EXPECT_EQ(options.chosen.at("--smoothing").on_ranks, OnRanks::kSame);
}

}  // namespace
}  // namespace torchbridge::train
