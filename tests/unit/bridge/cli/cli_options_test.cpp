#include "bridge/cli/cli_options.h"

#include <gtest/gtest.h>

#include "bridge/cli/command_line_end.h"

using namespace torchbridge;

namespace {

std::string help_of(const char* command) {
  std::string words[] = {"torchbridge", command, "--help"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  try {
    parse_cli_options(3, argv, EnvMap());
  } catch (const CommandLineEnd& end) {
    return end.text;
  }
  return "no help";
}

TEST(CliOptions, HelpHasTheWordsThatAnOptionTakes) {
  EXPECT_NE(help_of("env").find("--format sh|json"), std::string::npos) << help_of("env");
  EXPECT_NE(help_of("env").find("(default: sh)"), std::string::npos) << help_of("env");
  for (const char* command : {"exec", "env", "explain", "status"})
    EXPECT_EQ(help_of(command).find("->"), std::string::npos) << help_of(command);
}

TEST(CliOptions, EnvPrintsTheFormatThatIsNamed) {
  const std::pair<const char*, EnvFormat> kCases[] = {{"sh", EnvFormat::kShell},
                                                      {"json", EnvFormat::kJson}};
  for (const auto& [name, format] : kCases) {
    std::string words[] = {"torchbridge", "env", "--format", name};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    EXPECT_EQ(parse_cli_options(4, argv, EnvMap()).format, format) << name;
  }
}

// The error, or "" where there is none.
std::string error_of_command(std::vector<std::string> words) {
  std::string name = "torchbridge";
  std::vector<char*> arguments = {name.data()};
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  try {
    parse_cli_options(static_cast<int>(words.size()) + 1, arguments.data(), {});
  } catch (const CommandLineEnd& end) {
    return end.text.substr(0, end.text.rfind(" (see "));
  }
  return "";
}

TEST(CliOptions, AWordThatNoCommandReadsIsAnErrorThatShowsTorchEnv) {
  const struct {
    std::vector<std::string> words;
    const char* error;
  } kCases[] = {
      {{"exec", "--", "true"}, ""},
      {{"exec", "--torch-env=ranks=block", "--", "env", "ranks=block"}, ""},
      {{"exec", "ranks=block", "--", "true"},
       "unexpected argument 'ranks=block' before --: options are written --torch-env=ranks=block"},
      {{"exec", "verbose", "--", "true"},
       "unexpected argument 'verbose' before --: options are written --torch-env=verbose"},
      {{"exec", "ranks=block", "omp=4", "--timeout", "5", "--", "true"},
       "unexpected argument 'ranks=block' before --: options are written --torch-env=ranks=block"},
      {{"exec", "--timeout", "5", "ranks=block,omp=4", "--", "true"},
       "unexpected argument 'ranks=block,omp=4' before --: options are written "
       "--torch-env=ranks=block,omp=4"},
      {{"exec", "python", "--", "train.py"},
       "unexpected argument 'python' before --: options are written --torch-env=KEY=VALUE,..."},
      {{"exec", "ranks=blck", "--", "true"},
       "unexpected argument 'ranks=blck' before --: options are written --torch-env=KEY=VALUE,..."},
      {{"exec", "ranks=block"},
       "unexpected argument 'ranks=block' before --: options are written --torch-env=ranks=block"},
      {{"exec", "true"}, "write -- before the program: torchbridge exec -- true"},
      {{"exec"}, "exec needs a program after --"},
      {{"env", "ranks=block"},
       "unexpected argument 'ranks=block': options are written --torch-env=ranks=block"},
      {{"explain", "check=20"},
       "unexpected argument 'check=20': options are written --torch-env=check=20"},
      {{"explain", "now"}, "unexpected argument 'now'"},
      {{"explain", "--", "true"}, "only exec starts a program"},
  };
  for (const auto& [words, error] : kCases) {
    std::string line;
    for (const std::string& word : words) line += " " + word;
    EXPECT_EQ(error_of_command(words), error) << line;
  }
}

}  // namespace
