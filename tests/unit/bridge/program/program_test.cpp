#include "bridge/program/program.h"

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(Program, OfAnOptionThatIsGivenTwiceTheLastValueCounts) {
  CLI::App app;
  set_up(app);
  int first = 0, second = 0, third = 0;
  app.add_option("--first", first);
  app.add_option_group("group")->add_option("--second", second);
  app.add_subcommand("command")->add_option("--third", third);
  app.parse("--first 1 --second 2 --first=3 --second 4 command --third 5 --third 6");
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 4);
  EXPECT_EQ(third, 6);
}

std::string complaint(const std::string& line) {
  CLI::App app("", "program");
  set_up(app);
  double lr = 0;
  int batch_size = 0;
  app.add_option("--lr", lr);
  app.add_option_group("group")->add_option("--batch-size", batch_size);
  auto* convert = app.add_subcommand("convert");
  std::string from;
  std::string kind;
  convert->add_option("from", from)->required();
  convert->add_option("to", from)->required();
  convert->add_option("--kind", kind)->check(CLI::IsMember({"a", "b"}));
  app.add_subcommand("list")->add_option("folder", from)->required();
  convert->add_option("--optimizer", from);
  const OptionSuggestion kOthers[] = {{"learning-rate", "lr"}, {"training.steps", "batch-size"}};
  try {
    app.parse(line);
  } catch (const CLI::ParseError& error) {
    return command_line_error(app, error, kOthers);
  }
  return "";
}

TEST(Program, AnUnknownOptionIsReportedWithTheNearest) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--lerning-rate 0.1", "unknown option '--lerning-rate'; did you mean '--lr'?"},
      {"--learning-rate=0.1", "unknown option '--learning-rate'; did you mean '--lr'?"},
      {"--learning_rate 0.1 --lr x", "unknown option '--learning_rate'; did you mean '--lr'?"},
      {"-lr 0.1", "unknown option '-lr'; did you mean '--lr'?"},
      {"--batch_size 8", "unknown option '--batch_size'; did you mean '--batch-size'?"},
      {"--training.steps 8", "unknown option '--training.steps'; did you mean '--batch-size'?"},
      {"--optimizer.lr 8", "unknown option '--optimizer.lr'; did you mean '--lr'?"},
      {"--training.batch-size 8",
       "unknown option '--training.batch-size'; did you mean '--batch-size'?"},
      {"--hlep", "unknown option '--hlep'; did you mean '--help'?"},
      {"convert --optimiser a", "unknown option '--optimiser'; did you mean '--optimizer'?"},
      {"--completely-different", "unknown option '--completely-different'"},
      {"--lr 0.1 0.2", "unexpected argument '0.2'"},
  };
  for (const auto& [line, expected] : kCases) EXPECT_EQ(complaint(line), expected) << line;
}

TEST(Program, AMissingValueOrArgumentIsReportedWithWhatIsExpected) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--lr", "--lr needs a value: a number"},
      {"--batch-size", "--batch-size needs a value: a whole number"},
      {"convert a b --kind", "--kind needs a value: one of a|b"},
      {"convert a b --optimizer", "--optimizer needs a value"},
      {"convert", "convert needs FROM and TO: program convert FROM TO"},
      {"convert a", "convert needs FROM and TO: program convert FROM TO"},
      {"list", "list needs FOLDER: program list FOLDER"},
      {"convert a b", ""},
      {"", ""},
  };
  for (const auto& [line, expected] : kCases) EXPECT_EQ(complaint(line), expected) << line;
}

TEST(Program, AMissingOrUnknownSubcommandIsReportedWithThoseThatAreThere) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "expected a subcommand: exec, env or explain"},
      {"foo", "unknown subcommand 'foo': expected exec, env or explain"},
      {"foo --option 1 bar", "unknown subcommand 'foo': expected exec, env or explain"},
      {"exce", "unknown subcommand 'exce': expected exec, env or explain; did you mean 'exec'?"},
      {"--option 1", "unknown option '--option'"},
      {"exec foo", "unexpected argument 'foo'"},
  };
  for (const auto& [line, expected] : kCases) {
    CLI::App app("", "program");
    set_up(app);
    app.require_subcommand(1);
    for (const char* name : {"exec", "env", "explain"}) app.add_subcommand(name);
    try {
      app.parse(line);
      ADD_FAILURE() << line;
    } catch (const CLI::ParseError& error) {
      EXPECT_EQ(command_line_error(app, error), expected) << line;
    }
  }
}

std::string asked(CLI::App& app, const std::string& line) {
  try {
    app.parse(line);
  } catch (const CLI::ParseError& error) {
    return help_or_version(app, error).value_or("an error");
  }
  return "nothing";
}

TEST(Program, HelpIsInColumns) {
  CLI::App app("Does things.", "program");
  set_up(app);
  std::int64_t steps = 0;
  std::string kind = "a", file;
  app.add_option("--steps", steps, "Stop after so many; 0: no limit")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--kind", kind,
                 "As it is described in this text, which is longer than the seventy columns that "
                 "are left for it, and "
                 "so goes on below")
      ->check(CLI::IsMember({"a", "b"}))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--a-file-with-a-long-name", file, "Read\n  this one");
  EXPECT_EQ(asked(app, "--help"),
            "Does things.\n"
            "Usage: program [OPTIONS]\n\n"
            "Options:\n"
            "  -h,--help                   Print this help\n"
            "  --version                   Print the version, and what it was built with\n"
            "  --a-file-with-a-long-name TEXT\n"
            "                              Read\n"
            "                                this one\n"
            "\n\n"
            "Training:\n"
            "  --steps INT                 Stop after so many; 0: no limit (default: 0)\n"
            "  --kind a|b                  As it is described in this text, which is longer than "
            "the seventy\n"
            "                              columns that are left for it, and so goes on below "
            "(default: a)\n"
            "\n");
}

TEST(Program, VersionIsThatOfTheProject) {
  CLI::App app("", "program");
  set_up(app, "tin 1.0");
  app.add_subcommand("convert")->add_option("from")->required();
  app.require_subcommand(1);
  const std::string version = asked(app, "--version");
  EXPECT_TRUE(version.starts_with("program (torchbridge) " TORCHBRIDGE_VERSION ", built with "))
      << version;
  EXPECT_TRUE(version.ends_with(", tin 1.0\n")) << version;
  EXPECT_EQ(asked(app, ""), "an error");
}

}  // namespace
}  // namespace torchbridge
