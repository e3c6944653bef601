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
  const Words waiting[] = {
      {"torchrun", "--nnodes=2", "train.py"},
      {"torchrun", "x.py", "--standalone"},
      {"torchrun", "x.py", "--nnodes=1"},
      {"torchrun", "--nproc-per-node", "2", "--no-python", "./e.sh", "--nnodes", "1"},
      {"torchrun", "-m", "pkg.train", "--nnodes", "1"},
      {"torchrun", "-r3", "-t", "3", "train", "--nnodes", "1"},
      {"torchrun", "--rdzv-conf=timeout=9,is_host=1", "train", "--standalone"},
      {"torchrun", "--log-line-prefix-template", "[a b c]", "train", "--standalone"},
      {"torchrun", "--", "train", "--standalone"},
      {"python", "-m", "torch.distributed.run", "x.py", "--rdzv-endpoint", "localhost:3"},
      {"bash", "-c", "torchrun --standalone prep.py; torchrun x.py"},
      {"bash", "-c", "torchrun x.py; python3 -c 1 --standalone"},
      {"bash", "-c", "torchrun & python3 --standalone"},
      {"bash", "-c", "torchrun --node-rank $(id --standalone) x.py --standalone"},
      {"bash", "-c", "torchrun --master-addr `hostname` x.py --standalone"},
      {"bash", "-c", "torchrun --nproc-per-node 2 $SCRIPT --nnodes 1"},
      {"bash", "-c", "torchrun \"$@\"", "sh", "x.py", "--standalone"},
      {"bash", "-c", "(torchrun x.py) --standalone"}};
  for (const auto& program : waiting)
    EXPECT_EQ(torchruns_in(program).of_nodes.size(), 1u) << program.back();
}

TEST(AgentCommand, KnowsTorchrunThatIsAlone) {
  const Words alone[] = {
      {},
      {"torchbridge", "run", "./trainer"},
      {"torchrun", "--standalone", "train.py"},
      {"torchrun", "--no-python", "--nnodes", "1", "train"},
      {"torchrun", "-r3", "-t", "3", "--nnodes=1:1", "train"},
      {"torchrun", "--rdzv-conf", "timeout=9,is_host=1", "--rdzv_endpoint=[::1]:3", "train"},
      {"torchrun", "--log-line-prefix-template", "[a b c]", "--standalone", "train"},
      {"bash", "-c", "torchrun --standalone a.py; torchrun --nnodes=1 b.py"},
      {"bash", "-c", "cp torchrun x; torchrun --standalone a.py"},
      {"bash", "-c", "torchrun \\\n  --nproc-per-node 2 \\\n  --standalone \\\n  a.py"},
      {"bash", "-c", "torchrun --node-rank $((A + 1)) --role $(id -un):x --standalone a.py"},
      {"bash", "-c", "torchrun --role `id -un`x --standalone a.py"},
      {"bash", "-c", "torchrun $OPTIONS --standalone a.py"},
      {"bash", "-c", "$(which torchrun) --standalone a.py"},
      {"bash", "-c", "exec torchrun \"$@\"", "sh", "--standalone", "a.py"}};
  for (const auto& program : alone)
    EXPECT_TRUE(torchruns_in(program).of_nodes.empty()) << (program.empty() ? "" : program.back());
}

TEST(AgentCommand, KnowsTheOptionsOfTorchrun) {
  const auto address = [](const Words& program) {
    const auto torchruns = torchruns_in(program).of_nodes;
    if (torchruns.size() != 1) return std::to_string(torchruns.size());
    const auto& own = torchruns.front();
    return std::string(own.get("--master-addr").value_or(own.get("--rdzv-endpoint").value_or("")));
  };
  EXPECT_EQ(address({"torchrun", "--master_addr", "n0", "train.py"}), "n0");
  EXPECT_EQ(address({"bash", "-c", "cd x; torchrun --master-addr=n0 train.py"}), "n0");
  EXPECT_EQ(address({"torchrun", "--rdzv_endpoint=n0:29778", "train.py"}), "n0:29778");
  EXPECT_EQ(address({"torchrun", "--master-port", "29778", "train.py"}), "");
  EXPECT_EQ(address({"torchrun", "train.py", "--master_addr", "n0"}), "") << "the script's";
  EXPECT_EQ(address({"torchrun", "--no-python", "train", "--master_addr", "n0"}), "");
  EXPECT_EQ(address({"python", "train.py", "--master_addr", "n0"}), "0");
}

}  // namespace
}  // namespace torchbridge
