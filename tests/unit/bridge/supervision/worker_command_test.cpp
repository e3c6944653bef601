#include "bridge/supervision/worker_command.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

using Words = std::vector<std::string>;
using Program = RunOptions::Program;

RunOptions options_of(Words program, Program kind = Program::kByName) {
  RunOptions options;
  options.program = std::move(program);
  options.program_kind = kind;
  return options;
}

const EnvMap kEnvironment = {{"PATH", "/usr/bin:/bin"}, {"PYTHON_EXEC", "/opt/python"}};

TEST(WorkerCommand, RunsScriptsModulesAndPrograms) {
  const struct {
    RunOptions options;
    Words expected;
  } cases[] = {
      {options_of({"train.py", "--lr", "1"}), {"/opt/python", "-u", "train.py", "--lr", "1"}},
      {options_of({"package.train", "-x"}, Program::kModule),
       {"/opt/python", "-u", "-m", "package.train", "-x"}},
      {options_of({"train.py"}, Program::kNoPython), {"train.py"}},
      {options_of({"sh", "-c", "true"}), {"sh", "-c", "true"}},
      {options_of({"/bin/sh"}), {"/bin/sh"}},
      {options_of({"./missing"}), {"./missing"}},
  };
  for (const auto& c : cases) EXPECT_EQ(worker_command(c.options, kEnvironment, 0), c.expected);
}

TEST(WorkerCommand, RunsAFileThatIsNotExecutableWithPython) {
  const TemporaryFolder folder;
  const std::string script = folder / "train";
  std::ofstream(script) << "print(1)\n";
  EXPECT_EQ(worker_command(options_of({script}), kEnvironment, 0),
            (Words{"/opt/python", "-u", script}));
  chmod(script.c_str(), 0700);
  EXPECT_EQ(worker_command(options_of({script}), kEnvironment, 0), Words{script});
}

TEST(WorkerCommand, TakesThePythonOfTheVirtualEnvironmentThatTheCommandIsCalledFrom) {
  const TemporaryFolder folder;
  const std::string bin = folder / "bin", python = bin + "/python";
  std::filesystem::create_directory(bin);
  std::ofstream(python) << "#!/bin/sh\n";
  chmod(python.c_str(), 0700);
  const EnvMap environment = {{"PATH", ""}};
  RunOptions options = options_of({"train.py"});
  options.called_as = bin + "/torchbridge";
  EXPECT_EQ(worker_command(options, environment, 0), (Words{"python3", "-u", "train.py"}));
  for (const char* mark : {"pyvenv.cfg", "conda-meta"}) {
    std::ofstream(folder / mark) << "\n";
    EXPECT_EQ(worker_command(options, environment, 0), (Words{python, "-u", "train.py"})) << mark;
    std::filesystem::remove(folder / mark);
  }
  std::ofstream(folder / "pyvenv.cfg") << "\n";
  EXPECT_EQ(worker_command(options, kEnvironment, 0), (Words{"/opt/python", "-u", "train.py"}));
  options.called_as = "torchbridge";
  EXPECT_EQ(worker_command(options, environment, 0), (Words{"python3", "-u", "train.py"}));
}

TEST(WorkerCommand, RunsFoldersAndZipsWithPython) {
  const TemporaryFolder folder;
  const std::string package = folder / "package", zip = folder / "zip";
  std::filesystem::create_directory(package);
  EXPECT_EQ(worker_command(options_of({package}), kEnvironment, 0), Words{package});
  std::ofstream(package + "/__main__.py") << "print(1)\n";
  EXPECT_EQ(worker_command(options_of({package}), kEnvironment, 0),
            (Words{"/opt/python", "-u", package}));
  std::ofstream(zip) << "PK\x03\x04";
  chmod(zip.c_str(), 0700);
  EXPECT_EQ(worker_command(options_of({zip}), kEnvironment, 0), (Words{"/opt/python", "-u", zip}));
}

TEST(WorkerCommand, RunsAFileHereThatNoPathLeadsToWithPython) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "");
  std::ofstream("train") << "print(1)\n";
  std::ofstream("program") << "\x7f"
                           << "ELF";
  std::ofstream("sh") << "print(1)\n";
  for (const char* name : {"train", "program", "sh"}) chmod(name, 0700);
  EXPECT_EQ(worker_command(options_of({"train"}), kEnvironment, 0),
            (Words{"/opt/python", "-u", "train"}));
  EXPECT_EQ(worker_command(options_of({"./train"}), kEnvironment, 0), Words{"./train"});
  EXPECT_EQ(worker_command(options_of({"program"}), kEnvironment, 0), Words{"program"});
  EXPECT_EQ(worker_command(options_of({"sh"}), kEnvironment, 0), Words{"sh"});
  std::filesystem::current_path(before);
}

TEST(WorkerCommand, KeepsArgumentsByteForByteButTheLocalRank) {
  const Words arguments = {"$$", "a b",     "\"'\\",       "line\nline",
                           "",   "${rank}", "$local_rank", std::string(100000, 'x')};
  RunOptions options = options_of({"sh"});
  options.program.insert(options.program.end(), arguments.begin(), arguments.end());
  options.program.push_back("${local_rank}-${local_rank}");
  Words expected = options.program;
  expected.back() = "12-12";
  EXPECT_EQ(worker_command(options, kEnvironment, 12), expected);
}

TEST(WorkerCommand, PassesTheLocalRankAsTorchDistributedLaunchDoes) {
  RunOptions options = options_of({"train.py", "--lr", "1"});
  options.passes_local_rank = true;
  EXPECT_EQ(worker_command(options, kEnvironment, 3),
            (Words{"/opt/python", "-u", "train.py", "--local-rank=3", "--lr", "1"}));
}

TEST(WorkerCommand, IsPythonsForScriptsModulesAndPaths) {
  EXPECT_TRUE(is_run_by_python(options_of({"train.py"}), kEnvironment));
  EXPECT_TRUE(is_run_by_python(options_of({"package"}, Program::kModule), kEnvironment));
  EXPECT_TRUE(is_run_by_python(options_of({"train.py"}, Program::kRunPath), kEnvironment));
  EXPECT_FALSE(is_run_by_python(options_of({"train.py"}, Program::kNoPython), kEnvironment));
  EXPECT_FALSE(is_run_by_python(options_of({"/bin/sh"}), kEnvironment));
}

TEST(WorkerCommand, RunsAPathInTheInterpreter) {
  const Words command =
      worker_command(options_of({"/a/train.py", "-x"}, Program::kRunPath), kEnvironment, 0);
  ASSERT_EQ(command.size(), 6u);
  EXPECT_EQ(command[2], "-c");
  EXPECT_EQ(command[4], "/a/train.py");
  EXPECT_EQ(command[5], "-x");
}

}  // namespace
