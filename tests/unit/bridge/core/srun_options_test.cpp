#include "bridge/core/srun_options.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Words = std::vector<std::string>;

TEST(SrunOptions, ShowThatTheUserHasDecidedOnFailures) {
  const Words cases[] = {{"-k"},
                         {"--no-kill"},
                         {"--no-kill=set"},
                         {"--no-k"},
                         {"-K"},
                         {"-K0"},
                         {"-K1"},
                         {"--kill-on-bad-exit"},
                         {"--kill-on-bad-exit=0"},
                         {"--kill-on-bad=0"},
                         {"-N2", "-k", "-n", "4"},
                         {"--no-kill=off", "--no-kill"},
                         {"-kno", "-K0"},
                         {"-uk"},
                         {"-lK0"},
                         {"-vukno", "-Qk"}};
  for (const auto& options : cases) {
    Words command_line{"srun"};
    command_line.insert(command_line.end(), options.begin(), options.end());
    command_line.insert(command_line.end(), {"python", "train.py"});
    EXPECT_TRUE(has_decided_on_failures(command_line, {"python", "train.py"}, {}))
        << options.back();
    EXPECT_TRUE(has_decided_on_failures(command_line, {"/usr/bin/python", "train.py"}, {}))
        << options.back();
  }
}

TEST(SrunOptions, OfOtherWordsDecideNothing) {
  const struct {
    Words command_line, program;
  } kCases[] = {{{"srun", "true"}, {"true"}},
                {{"srun", "-N2", "--kill-on-invalid-dep=yes", "true"}, {"true"}},
                {{"srun", "--no-kill=off", "true"}, {"true"}},
                {{"srun", "-k", "-kno", "true"}, {"true"}},
                {{"srun", "python", "train.py", "-K", "--no-kill"},
                 {"python", "train.py", "-K", "--no-kill"}},
                // Values of other options.
                {{"srun", "-Jrank", "-lJkate", "-w", "k1", "-uwK1", "true"}, {"true"}},
                {{"srun", "-ukoff", "true"}, {"true"}},
                {{"srun", "-n1", "a", ":", "-n1", "--no-kill=off", "b"}, {"b"}}};
  for (const auto& test : kCases) {
    EXPECT_FALSE(has_decided_on_failures(test.command_line, test.program, {}))
        << ::testing::PrintToString(test.program);
  }
}

// Their end may be anything: what the user has decided is not known.
TEST(SrunOptions, ThatAreNotKnownHaveDecided) {
  const struct {
    Words command_line, program;
  } kCases[] = {{{}, {}}, {{"srun", "true"}, {}}, {{"srun", "a", "b"}, {"a", "c"}}};
  for (const auto& test : kCases)
    EXPECT_TRUE(has_decided_on_failures(test.command_line, test.program, {}));
}

// Whose programs are not known: their arguments count too.
TEST(SrunOptions, OfOneComponentDecide) {
  const Words cases[] = {{"srun", "-k", "a", ":", "b"},
                         {"srun", "-uk", "a", ":", "-kno", "b"},
                         {"srun", "a", ":", "--kill-on-bad-exit=0", "b"},
                         {"srun", "a", "-K", ":", "b"},
                         {"srun", "a", ":", "b", ":", "--no-kill", "b"}};
  for (const auto& command_line : cases) {
    EXPECT_TRUE(has_decided_on_failures(command_line, {"b"}, {}))
        << ::testing::PrintToString(command_line);
  }
}

// As srun gives it: the content of the file is behind its name.
TEST(SrunOptions, AreFoundBeforeAMultiProgFile) {
  const Words program{"ranks.conf", "0 python\n1 sleep 5\n"};
  EXPECT_TRUE(has_decided_on_failures({"srun", "-k", "--multi-prog", "ranks.conf"}, program, {}));
  EXPECT_FALSE(has_decided_on_failures({"srun", "--multi-prog", "ranks.conf"}, program, {}));
}

TEST(SrunOptions, MayBeVariables) {
  const Words srun{"srun", "true"}, program{"true"};
  EXPECT_TRUE(has_decided_on_failures(srun, program, {{"SLURM_KILL_BAD_EXIT", "0"}}));
  EXPECT_TRUE(has_decided_on_failures(srun, program, {{"SLURM_NO_KILL", "set"}}));
  EXPECT_FALSE(has_decided_on_failures(srun, program, {{"SLURM_NO_KILL", "off"}}));
  EXPECT_FALSE(has_decided_on_failures({"srun", "--no-kill=no", "true"}, program,
                                       {{"SLURM_NO_KILL", "set"}}));
}

}  // namespace
}  // namespace torchbridge
