#include <torchbridge/train/run/command_line.h>

#include <gtest/gtest.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/run/other_names.h>

#include <set>
#include <sstream>

namespace torchbridge::train {
namespace {

const TaskKind kKinds[] = {{.name = "none", .summary = "", .models = "", .defaults = {}, .check_model = [](const std::string&) {}, .open = {}}};

Options parsed(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), kKinds);
}

// The names that lines of --help begin with.
std::set<std::string> options_in_help() {
  std::set<std::string> names;
  try {
    parsed({"trainer", "--help"});
  } catch (const EarlyExit& help) {
    std::istringstream lines(help.what());
    for (std::string line, name; std::getline(lines, line);) {
      if (std::istringstream(line) >> name && name.starts_with("--")) names.insert(name);
    }
  }
  names.erase("--config");  // its options are options too
  return names;
}

TEST(CommandLine, KnowsOfEachOptionWhatRanksThatDifferDo) {
  std::set<std::string> names;
  for (const auto& [name, option] : parsed({"trainer"}).on_ranks) names.insert(name);
  EXPECT_GT(names.size(), 50u);
  EXPECT_EQ(names, options_in_help());
}

TEST(CommandLine, TellsValuesAsTheRanksCompareThem) {
  const Options options = parsed({"trainer", "--lr", "1e-1", "--no-decay", "a,b", "--deterministic", "--optimizer", "adamw", "--resume", "/runs/a", "--init-from", "/w", "--save-busy", "skip"});
  const std::pair<const char*, const char*> kValues[] = {
      {"--lr", "0.1"}, {"--no-decay", "a,b"}, {"--deterministic", "yes"}, {"--no-decay-1d", "no"}, {"--weight-decay", "0.01"}, {"--resume", "a path"},
      {"--init-from", "set"}, {"--checkpoint-dir", "not set"}, {"--save-busy", "skip"}, {"--epochs", "10"}, {"--generate", ""}};
  for (const auto& [name, value] : kValues) EXPECT_EQ(options.on_ranks.at(name).value, value) << name;
}

TEST(CommandLine, OfAnOptionThatIsGivenTwiceTheLastValueCounts) {
  const Options options = parsed({"trainer", "--checkpoint-every", "100", "--no-decay", "a,b", "--quiet", "--no-decay", "c", "--checkpoint-every=50", "--quiet=false"});
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

TEST(CommandLine, AMisspelledOptionIsAnsweredWithTheNearest) {
  for (const std::string& name : options_in_help()) {
    const std::string wrong = name + "x";
    EXPECT_EQ(complaint({wrong, "1"}), "there is no option '" + wrong + "'; did you mean '" + name + "'? (see --help)");
  }
}

TEST(CommandLine, NamesOfOtherTrainersAreAnsweredWithOurs) {
  const std::set<std::string> names = options_in_help();
  for (const OtherName& other : kOtherNames) {
    const std::string ours = "--" + std::string(other.ours);
    EXPECT_TRUE(names.contains(ours) || ours == "--config") << ours;
    EXPECT_EQ(complaint({"--" + std::string(other.theirs) + "=1"}), "there is no option '--" + std::string(other.theirs) + "'; did you mean '" + ours + "'? (see --help)");
  }
  EXPECT_EQ(complaint({"--learning_rate", "0.1"}), "there is no option '--learning_rate'; did you mean '--lr'? (see --help)");
  EXPECT_EQ(complaint({"--optimizer.lr", "0.1"}), "there is no option '--optimizer.lr'; did you mean '--lr'? (see --help)");
}

}  // namespace
}  // namespace torchbridge::train
