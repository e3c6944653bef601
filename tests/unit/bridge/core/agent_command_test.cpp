#include "bridge/core/agent_command.h"

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

using Words = std::vector<std::string>;

TEST(AgentCommand, KnowsAgents) {
  const Words agents[] = {
      {"torchrun", "train.py"},
      {"/opt/venv/bin/torchrun", "--standalone", "train.py"},
      {"python", "-m", "torch.distributed.run", "train.py"},
      {"python", "-mtorch.distributed.launch", "train.py"},
      {"bash", "-c", "source env.sh && torchrun --nnodes=1 train.py"},
      {"torchbridge", "run", "./trainer"},
      {"build/bin/torchbridge", "launch", "./trainer"},
      {"bash", "-c", "exec \"$BIN/torchbridge\" run --nproc-per-node=2 ./trainer"},
      {"torchrun", "train"},
      {"bash", "-c", "cd x && torchrun $SCRIPT"},
      {"sh", "-c", ": first; exec '/opt/bin/torchrun'"},
      {"sh", "-c", "uv run torchrun \"$@\"", "sh", "train"},
      {"uv", "run", "--frozen", "torchrun", "-m", "package.train"},
      {"apptainer", "exec", "image.sif", "torchrun", "--nproc_per_node=4", "train"},
      {"ranks.conf", "0 true\n1-3 torchrun train.py\n"}};
  for (const auto& program : agents) EXPECT_TRUE(is_agent(program)) << program.back();
}

TEST(AgentCommand, KnowsOtherPrograms) {
  const Words others[] = {{},
                          {"python", "train.py"},
                          {"bash", "train.sh"},
                          {"torchbridge", "exec", "--", "python", "train.py"},
                          {"torchbridge", "exec", "run"},
                          {"/home/u/torchrun/run.sh"},
                          {"trainer", "--checkpoint-dir", "runs/torchrun"},
                          {"trainer", "--checkpoint-dir=runs/torchrun", "--resume"},
                          {"python", "train.py", "--run-name", "torchrun", "--epochs", "3"},
                          {"bash", "-c", "exec ./trainer --checkpoint-dir runs/torchrun"},
                          {"/home/u/torchbridge/run"},
                          {"run", "torchbridge"}};
  for (const auto& program : others)
    EXPECT_FALSE(is_agent(program)) << (program.empty() ? "" : program.back());
}

TEST(AgentCommand, KnowsTorchrunThatWaitsForOtherNodes) {
  EXPECT_TRUE(is_torchrun_of_nodes({"torchrun", "--nnodes=2", "train.py"}));
  EXPECT_FALSE(is_torchrun_of_nodes({"torchrun", "--standalone", "train.py"}));
  EXPECT_FALSE(is_torchrun_of_nodes({"torchbridge", "run", "./trainer"}));
}

TEST(AgentCommand, KnowsTheOptionsOfTorchrun) {
  const auto has_address = [](const Words& program) {
    return torchrun_has(program, {"--master-addr", "--rdzv-endpoint"});
  };
  EXPECT_TRUE(has_address({"torchrun", "--master_addr", "n0", "train.py"}));
  EXPECT_TRUE(has_address({"bash", "-c", "cd x; torchrun --master-addr=n0 train.py"}));
  EXPECT_TRUE(has_address({"torchrun", "--rdzv_endpoint=n0:29778", "train.py"}));
  EXPECT_FALSE(has_address({"torchrun", "--master-port", "29778", "train.py"}));
  EXPECT_FALSE(has_address({"torchrun", "train.py", "--master_addr", "n0"})) << "the script's";
  EXPECT_FALSE(has_address({"python", "train.py", "--master_addr", "n0"}));
}

}  // namespace
}  // namespace torchbridge
