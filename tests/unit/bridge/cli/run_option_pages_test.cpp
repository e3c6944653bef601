#include "bridge/cli/run_option_pages.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "bridge/cli/cli_options.h"
#include "bridge/cli/run_option_table.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(RunOptionPages, HelpNamesEachOptionInAtMostAHundredColumns) {
  const std::string help = run_option_page("").value();
  for (const std::string& line : lines_of(help)) EXPECT_LE(line.size(), 100u) << line;
  for (const RunOption& option : run_options()) {
    EXPECT_TRUE(contains(help, "--" + std::string(option.name)));
    EXPECT_TRUE(contains(help, std::string(option.group) + ":\n"));
    EXPECT_TRUE(contains(help, std::string(option.help.substr(0, option.help.find(' ')))));
  }
  EXPECT_TRUE(contains(help, "Usage: torchbridge run [OPTIONS] PROGRAM [ARGUMENTS]"));
  EXPECT_TRUE(contains(help, "--nnodes N|MIN:MAX "));
  EXPECT_TRUE(contains(help, "(default: static)"));
}

TEST(RunOptionPages, OfTheDocumentationIsTheTables) {
  std::ifstream file(in_source("docs/use/run_options.md"));
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(page.find(run_option_page("markdown").value()) != page.npos)
      << "docs/use/run_options.md is not up to date: put in its table what torchbridge run "
         "--help=markdown "
         "prints";
}

// What the command prints, to stderr too.
std::string output_of(const std::string& command) {
  FILE* shell = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t size; (size = fread(buffer.data(), 1, buffer.size(), shell)) > 0;)
    text.append(buffer.data(), size);
  pclose(shell);
  return text;
}

// What `torchbridge --help=FORMAT` prints.
std::string page_of_the_command(std::string format) {
  std::string name = "torchbridge";
  format = "--help=" + format;
  char* arguments[] = {name.data(), format.data(), nullptr};
  try {
    parse_cli_options(2, arguments, {});
  } catch (const CommandLineEnd& end) {
    return end.text;
  }
  return "";
}

TEST(RunOptionPages, ManPageIsFormattedWithoutAWarning) {
  if (output_of("command -v groff").empty()) GTEST_SKIP() << "no groff (Debian: groff-base)";
  const TemporaryFolder folder;
  for (const auto& [text, expected] :
       {std::pair(run_option_page("man").value(), "--nnodes N|MIN:MAX"),
        std::pair(page_of_the_command("man"), "--format sh|json")}) {
    folder.write("page", text);
    const std::string page = (folder / "page").string();
    EXPECT_EQ(output_of("groff -man -ww -z -Tascii " + page), "");
    const std::string shown = output_of("groff -man -Tascii -P-cbou " + page);
    EXPECT_TRUE(contains(shown, expected));
    EXPECT_TRUE(std::regex_search(shown, std::regex(R"(\ntorchbridge \d+\.\d+\.\d+ )"))) << shown;
  }
}

TEST(RunOptionPages, PrintCompletionIsThePageOfTheWholeCommand) {
  std::string words[] = {"torchbridge", "run", "--print-completion", "zsh"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  try {
    parse_cli_options(4, arguments, {});
    ADD_FAILURE() << "it prints nothing";
  } catch (const CommandLineEnd& end) {
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_EQ(end.text, page_of_the_command("zsh"));
  }
}

// Shells that are installed take their completion; fish also answers.
TEST(RunOptionPages, CompletionsArePagesOfTheirShell) {
  const TemporaryFolder folder;
  for (const std::string shell : {"bash", "zsh", "fish", "tcsh"}) {
    const std::string page = page_of_the_command(shell), file = (folder / shell).string();
    EXPECT_TRUE(contains(page, "numa-binding")) << shell;
    folder.write(shell, page);
    const bool is_installed = !output_of("command -v " + shell).empty();
    EXPECT_EQ(is_installed ? output_of(shell + " -n " + file) : "", "") << shell;
  }
  if (output_of("command -v fish").empty()) GTEST_SKIP() << "no fish";
  const std::string ask = "env HOME=" + (folder / "").string() + " fish -c 'source " +
                          (folder / "fish").string() + "; complete -C \"";
  EXPECT_TRUE(output_of(ask + "torchbridge run --log-fo\"'").starts_with("--log-format"));
  EXPECT_TRUE(output_of(ask + "torchbridge run --log-format j\"'").starts_with("json"));
  EXPECT_TRUE(output_of(ask + "torchbridge stat\"'").starts_with("status"));
}

// What bash offers for a line whose cursor is at its end, one a line.
std::string completions(const std::string& line) {
  const TemporaryFolder folder;
  folder.write("completion", page_of_the_command("bash"));
  folder.write("ask",
               "compopt() { echo \"compopt $*\"; }\nsource \"$1\"\nCOMP_LINE=$2 "
               "COMP_POINT=${#2}\n_torchbridge\n"
               "[[ ${#COMPREPLY[@]} = 0 ]] || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  return output_of("bash " + (folder / "ask").string() + " " + (folder / "completion").string() +
                   " '" + line + "'");
}

TEST(RunOptionPages, BashCompletesOptionsAndTheirValues) {
  const std::string kFiles = "compopt -o default\n";
  const std::pair<const char*, std::string> kCases[] = {
      {"torchbridge r", "run\n"},
      {"torchbridge e", "exec\nenv\nexplain\n"},
      {"torchbridge run --nn", "--nnodes\n"},
      {"torchbridge launch --us", "--use-env\n"},
      {"torchbridge run --duplicate", "--duplicate-stdout-filters\n--duplicate-stderr-filters\n"},
      {"torchbridge run --nproc-per-node ", "auto\ncpu\ngpu\n"},
      {"torchbridge run --nproc_per_node g", "gpu\n"},
      {"torchbridge run --log-format=", "prefix\njson\n"},
      {"torchbridge run --log_format=j", "json\n"},
      {"torchbridge run --log-dir ", kFiles},
      {"torchbridge run --log-dir=lo", kFiles},
      {"torchbridge run -r ", ""},
      {"torchbridge run -r 3 --stand", "--standalone\n"},
      {"torchbridge run --nnodes=2 --stand", "--standalone\n"},
      {"torchbridge run --standalone tr", kFiles},
      {"torchbridge run --standalone train.py --nn", kFiles},
      {"torchbridge run -- --nn", kFiles},
      {"torchbridge exec --", "--help\n--torch-env\n--timeout\n"},
      {"torchbridge exec -- python --ti", kFiles},
      {"torchbridge env --format ", "sh\njson\n"},
      {"torchbridge status --rdzv-token-file ", kFiles},
  };
  for (const auto& [line, expected] : kCases) EXPECT_EQ(completions(line), expected) << line;
}

}  // namespace
}  // namespace torchbridge
