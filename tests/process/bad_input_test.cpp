// Bad input ends all ranks within seconds, with one line from one of them.
#include <sys/socket.h>
#include <sys/stat.h>

#include <optional>
#include <thread>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

constexpr std::chrono::seconds kRejectedWithin{15};
const Words kShort = {"--max-steps", "2"};

// CommandLine.RejectsOptions has all of them. These show what the ranks do, for each place that
// looks at options.
TEST(BadInput, RankZeroRejectsOptions) {
  const struct {
    Words options;
    std::string expected;
  } kCases[] = {
      {{"--bogus"}, "--bogus"},
      {{"--config", "/none.toml"}, "/none.toml"},
      {{"--model", "mlp:3,,4"}, "expected mlp:WIDTH,WIDTH"},
      {{"--model", "mlp:"}, "expected mlp:WIDTH,WIDTH"},
      {{"--model", "gpt"}, "expected mlp:WIDTH,WIDTH"},
      {{"--task", "texts"}, "--task"},
      {{"--checkpoint-dir=", "--zero", "0"}, "--checkpoint-dir: the value is empty"},
  };
  for (const auto& c : kCases) {
    Ranks ranks(2, trainer(c.options));
    expect_one_line(ranks, c.expected);
    EXPECT_EQ(ranks.error(1), "");
  }
}

// One of the ranks reports it. CUDA_VISIBLE_DEVICES hides the GPUs of a machine that has some.
TEST(BadInput, ADeviceOrBackendThatIsNotAvailableIsRejected) {
  const std::map<std::string, Words> kCases = {
      {"no GPU is visible (", {"--device", "cuda"}},
      {"backend 'nccl' needs a GPU, but no GPU is visible (", {"--backend", "nccl"}},
  };
  for (const auto& [expected, options] : kCases) {
    Ranks ranks(2, trainer(options), {{"CUDA_VISIBLE_DEVICES", "-1"}});
    expect_one_line(ranks, expected);
  }
}

// A GPU that would emulate the precision is rejected. One that supports it passes the check, and
// CUDA then fails with the fake driver.
TEST(BadInput, APrecisionThatTheGpuLacksIsRejected) {
  const struct {
    const char *precision, *capability, *expected;
  } kCases[] = {
      {"bf16", "7.5", "--precision bf16: Fake GPU has compute capability 7.5, bf16 needs 8.0"},
      {"fp16", "5.2", "--precision fp16: Fake GPU has compute capability 5.2, fp16 needs 5.3"},
      {"fp16", "7.5", "CUDA"},
  };
  const Words kWays[] = {
      {"--device", "cuda"}, {}, {"--backend", "nccl"}, {"--backend", "cpu:gloo,cuda:nccl"}};
  for (const Words& way : kWays) {
    for (const auto& c : kCases) {
      if (&way != kWays && &c != kCases)
        continue;  // where a GPU is chosen in another way, one precision shows it
      Words words = trainer({"--precision", c.precision});
      words.insert(words.end(), way.begin(), way.end());
      Ranks ranks(2, words,
                  {{"LD_LIBRARY_PATH", in_build("tests/programs/fake_driver")},
                   {"FAKE_GPU_CAPABILITY", c.capability}});
      expect_one_line(ranks, c.expected);
    }
  }
}

TEST(BadInput, TheCommandLineOverridesTheConfigFile) {
  TemporaryFolder folder;
  folder.write("run.toml", "max-steps = 3\nmomentum = 0.5\n");
  Ranks ranks(1, trainer({"--config", folder / "run.toml", "--max-steps", "2", "--metrics",
                          folder / "curve"}));
  EXPECT_EQ(ranks.wait(), std::vector<int>{0}) << ranks.errors();
  EXPECT_EQ(losses(folder / "curve").size(), 2u);
  folder.write("run.toml", "max-stepz = 3\n");
  Ranks wrong(1, trainer({"--config", folder / "run.toml"}));
  expect_one_line(wrong, "max-stepz");
}

// No launcher knows the other processes, which may have the variable: each process without it
// prints a line.
TEST(BadInput, MissingVariablesAreNamed) {
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Ranks ranks(2, trainer(kShort), {{name, "unset"}});
    expect_error(ranks, name);
    EXPECT_EQ(lines_in(ranks.errors()), 2) << ranks.errors();
  }
}

TEST(BadInput, ARankReportsAVariableThatIsWrongOnItAlone) {
  const struct {
    Variables variables;
    std::string expected;
  } kCases[] = {
      {{{"RANK", "2"}}, "RANK='2': expected an integer from 0 to 1 (WORLD_SIZE='2')"},
      {{{"LOCAL_RANK", "7"}}, "LOCAL_RANK='7'"},
      {{{"MASTER_ADDR", "unset"}}, "MASTER_ADDR is not set"},
  };
  for (const auto& test : kCases) {
    Ranks ranks({1}, 2, free_port(), trainer(kShort), test.variables);
    expect_one_line(ranks, test.expected);
  }
}

TEST(BadInput, ADataFolderWithoutFilesIsNamed) {
  TemporaryFolder folder;
  Ranks ranks(3, trainer({"--data", folder.path()}));
  expect_one_line(ranks, "has no train-images-idx3-ubyte");
}

TEST(BadInput, ACheckpointFolderThatCannotBeMadeIsNamed) {
  Ranks ranks(2, trainer({"--checkpoint-dir", "/proc/none/runs"}));
  expect_one_line(ranks, "cannot create checkpoint folder '/proc/none/runs'");
  Ranks at_once(1, trainer({"--checkpoint-dir", "/proc/none"}));
  expect_one_line(at_once, "; give a --checkpoint-dir that all ranks can write to");
}

TEST(BadInput, AMetricsFileThatCannotBeWrittenIsNamed) {
  Ranks ranks(2, trainer({"--metrics", "/proc/none/curve.jsonl"}));
  expect_one_line(ranks, "cannot write '/proc/none/curve.jsonl'");
}

TEST(BadInput, InitialWeightsInNoKnownFormatAreRejected) {
  TemporaryFolder folder;
  folder.write("weights", "not weights at all");
  Ranks ranks(2, trainer({"--init-from", folder / "weights"}));
  expect_one_line(ranks, "weights is not a safetensors file");
}

TEST(BadInput, WeightsThatDoNotFit) {
  TemporaryFolder folder;
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  folder.write("weights", static_cast<char>(header.size()) + std::string(7, '\0') + header +
                              std::string(8, '\0'));
  Ranks ranks(1, trainer({"--init-from", folder / "weights", "--model", "mlp:32"}));
  expect_one_line(ranks,
                  "has no 'layers.0.weight', which this model has with shape [32, 64]; it has 'w' "
                  "instead");
}

// The first steps or predictions would have them, and blame the learning rate.
TEST(BadInput, WeightsThatAreNotFiniteAreRejected) {
  TemporaryFolder folder;
  Ranks first(1, trainer({"--max-steps", "1", "--checkpoint-dir", folder / "runs"}));
  ASSERT_EQ(first.wait(), std::vector<int>{0}) << first.errors();
  std::string weights = folder.read("runs/latest/model.safetensors");
  weights.replace(weights.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  folder.write("weights", weights);
  for (const Words& use : {Words{}, Words{"--predict", folder / "weights"}}) {
    Words words = trainer({"--init-from", folder / "weights"});
    words.insert(words.end(), use.begin(), use.end());
    Ranks rank(1, words);
    expect_one_line(rank, "weights: '");
    EXPECT_TRUE(contains(rank.errors(), "' has weights that are NaN or infinite"));
  }
}

// The message has the command that converts them.
TEST(BadInput, FilesOfTorchSave) {
  TemporaryFolder folder;
  const std::string file = folder / "x.pt", runs = folder / "runs",
                    command = "by python -m torchbridge.convert " + file + " ";
  folder.write("x.pt", "PK\x03\x04 and more bytes");
  Ranks weights(1, trainer({"--init-from", file}));
  expect_one_line(weights, command + std::string(folder / "x.safetensors"));
  Ranks resumed(1, trainer({"--resume", file, "--checkpoint-dir", runs}));
  expect_one_line(resumed, command + runs);
}

// No process ever writes into the pipe.
TEST(BadInput, WeightsThatAreAPipeAreRejected) {
  TemporaryFolder folder;
  mkfifo((folder / "pipe").c_str(), 0600);
  Ranks ranks(1, trainer({"--init-from", folder / "pipe"}));
  expect_one_line(ranks, "pipe: is not a regular file");
}

TEST(BadInput, ACheckpointOfAnotherModelIsRejected) {
  TemporaryFolder folder;
  const std::string runs = folder / "runs";
  Ranks first(2, trainer({"--max-steps", "2", "--checkpoint-dir", runs}));
  ASSERT_EQ(first.wait(), (std::vector<int>{0, 0})) << first.errors();
  const struct {
    Words options;
    std::string expected;
  } kCases[] = {
      {{"--model", "mlp:128,60"},
       "has 'layers.2.weight' with shape [64, 128], this model with [60, 128]"},
      {{"--model", "mlp:128,64,8"}, "this model"},
      {{"--optimizer", "adamw"},
       "was written with --optimizer sgd, this run has --optimizer adamw"},
      {{"--seed", "5"}, "was written with --seed 0, this run has --seed 5"},
      {{"--resume", "none"}, "contains checkpoints"},
      {{"--resume", folder / "elsewhere"}, "no checkpoint found"},
  };
  for (const auto& c : kCases) {
    Words options = {"--checkpoint-dir", runs};
    options.insert(options.end(), c.options.begin(), c.options.end());
    Ranks ranks(2, trainer(options));
    expect_one_line(ranks, c.expected);
  }
}

// A wrapper script that differs on one node gives such options. Without a check some ranks would
// hang, and some would train models that drift apart.
TEST(BadInput, RanksWithDifferentOptionsAreNamed) {
  const struct {
    const char *options, *expected;
  } kCases[] = {
      {"--lr 0.$((RANK + 1))",
       "--lr is 0.2 here and 0.1 on rank 0; all ranks need the same options"},
      {"--seed $RANK --epochs $((RANK + 1))",
       "--epochs is 2 here and 1 on rank 0; --seed is 1 here and 0 on rank 0"},
      {"--precision fp16 --loss-scale 6553$((RANK + 6))",
       "--loss-scale is 65537 here and 65536 on rank 0"},
      {"$([ $RANK = 0 ] || echo --no-decay bias,seen --deterministic)",
       "--deterministic is yes here and no on rank 0; --no-decay is bias,seen here and empty on "
       "rank 0"},
      {"$([ $RANK = 0 ] || echo --checkpoint-dir /none)",
       "--checkpoint-dir is set here and not set on rank 0"},
      {"$([ $RANK = 0 ] || echo --predict /none --init-from /none)",
       "--predict is set here and not set on rank 0"},
  };
  for (const auto& c : kCases) {
    Ranks ranks(2, {"/bin/sh", "-c",
                    "exec " + in_build("bin/trainer") + " --quiet --max-steps 3 " + c.options});
    expect_one_line(ranks, c.expected);
  }
}

// Only rank 0 writes metrics, so --metrics on rank 0 alone is valid, even for numbers that all
// ranks compute together.
TEST(BadInput, MetricsOnRankZeroAloneAreValid) {
  TemporaryFolder folder;
  Ranks ranks(2, {"/bin/sh", "-c",
                  "exec " + in_build("bin/trainer") +
                      " --quiet --max-steps 3 --zero 1 $([ $RANK = 1 ] || echo --metrics " +
                      (folder / "curve").string() + ")"});
  expect_success(ranks);
  EXPECT_TRUE(contains(folder.read("curve"), "grad_norm"));
}

// As after an update that did not reach all nodes.
TEST(BadInput, RanksWithDifferentDataAreNamed) {
  TemporaryFolder folder;
  for (int rank : {0, 1}) {
    const std::string text = std::string(400, static_cast<char>('a' + rank)),
                      name = std::to_string(rank);
    folder.write("other" + name + ".txt", text);
    folder.write("longer" + name + ".txt", text + std::string(100 * rank, 'c'));
  }
  const auto train = [&](const std::string& data) {
    return Words{
        "/bin/sh", "-c",
        "exec " + in_build("bin/trainer") +
            " --quiet --task text --model gpt:layers=1,heads=1,width=8,context=8 --batch-size "
            "1 --max-steps 3 --data " +
            data};
  };
  Ranks longer(2, train((folder / "longer$RANK.txt").string())),
      other(2, train((folder / "other$RANK.txt").string()));
  expect_one_line(longer, " on rank 0; all ranks need the same data");
  expect_one_line(other, "contains other samples than on rank 0; all ranks need the same data");
}

TEST(BadInput, ACheckpointFolderThatIsNotSharedIsNamed) {
  // Each rank resolves a relative path in a folder of its own.
  TemporaryFolder folder;
  const std::string script = "mkdir -p " + folder.path().string() + "/$RANK/runs && cd " +
                             folder.path().string() + "/$RANK && exec " + in_build("bin/trainer") +
                             " --quiet --checkpoint-dir runs";
  Ranks ranks(2, {"/bin/sh", "-c", script});
  expect_one_line(ranks, "is not the same folder here as on rank 0");
}

TEST(BadInput, APortThatIsTakenIsNamed) {
  const int port = free_port();
  const torchbridge::Socket other = *torchbridge::listen_on({"127.0.0.1", port});
  Ranks ranks({0, 1}, 2, port, trainer(kShort));
  expect_error(ranks, "MASTER_PORT=" + std::to_string(port));
  EXPECT_TRUE(contains(ranks.error(0), "in use"));
  // Ten seconds later, where no launcher has ended it: that service might be a rank 0 that is
  // stopped.
  EXPECT_TRUE(contains(ranks.error(1), "does not answer")) << ranks.error(1);
}

// Rank 0 died after it had answered the probe.
TEST(BadInput, AStoreThatIsGoneAtOnceIsNamed) {
  const int port = free_port();
  std::optional<torchbridge::Socket> store = *torchbridge::listen_on({"127.0.0.1", port});
  Ranks ranks({1}, 2, port, trainer({"--timeout", "5"}));
  const torchbridge::Socket client(accept(store->descriptor(), nullptr, nullptr));
  store.reset();
  char question[10];  // of store_probe.cpp
  ASSERT_EQ(recv(client.descriptor(), question, sizeof question, MSG_WAITALL),
            std::ssize(question));
  ASSERT_EQ(send(client.descriptor(), question + 6, 4, 0), 4);
  expect_one_line(ranks,
                  "no store answers at MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port));
}

TEST(BadInput, ThePortOfAnotherServiceIsNamed) {
  const int port = free_port();
  const torchbridge::Socket other = *torchbridge::listen_on({"127.0.0.1", port});
  std::thread service([&] {
    while (true) {
      const torchbridge::Socket peer(::accept(other.descriptor(), nullptr, nullptr));
      if (!peer.open()) return;
      if (::send(peer.descriptor(), "220 mail.example\r\n", 18, MSG_NOSIGNAL) < 0) continue;
    }
  });
  // A rank that waited for the timeout would still run when the test ends.
  Ranks ranks({0, 1, 2}, 3, port, trainer({"--timeout", "3600"}));
  expect_one_line(ranks, "MASTER_PORT=" + std::to_string(port));
  ::shutdown(other.descriptor(), SHUT_RDWR);
  service.join();
}

TEST(BadInput, AStoreThatNoProcessServesIsNamed) {
  const int port = free_port();
  Ranks ranks({1}, 2, port, trainer({"--timeout", "1"}));
  expect_one_line(ranks, "no store answers at MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                             std::to_string(port) + " after 1 s");
}

TEST(BadInput, ARankZeroWithWorldSizeOneIsNamed) {
  const int port = free_port();
  Ranks zero({0}, 1, port, trainer(kShort)), one({1}, 2, port, trainer({"--timeout", "1"}));
  expect_one_line(one, "check that rank 0 runs with WORLD_SIZE=2 (with 1 it serves no store)");
  EXPECT_EQ(zero.wait(), std::vector<int>{0}) << zero.errors();
}

TEST(BadInput, RanksThatDoNotJoinAreNamed) {
  const int port = free_port();
  Ranks ranks({0, 2}, 4, port, trainer({"--join-timeout", "1"}));
  expect_one_line(ranks, "ranks 1,3 (");
  EXPECT_TRUE(contains(ranks.errors(), ") of 4 did not join"));
  EXPECT_TRUE(contains(ranks.errors(), " within 1 s; ")) << ranks.errors();
}

// Rank 1 is on another node, where MASTER_ADDR is this node's name.
TEST(BadInput, NoNodeIsNamedOfARankThatMayBeOnAnother) {
  const int port = free_port();
  Ranks alone(
      {0}, 2, port, trainer({"--join-timeout", "1"}),
      {{"MASTER_ADDR", "localhost"}, {"LOCAL_RANK", "unset"}, {"LOCAL_WORLD_SIZE", "unset"}});
  expect_one_line(alone,
                  "rank 0: rank 1 of 2 did not join at localhost port " + std::to_string(port) +
                      " within 1 s; check that every rank was started and that its node "
                      "reaches MASTER_ADDR; if some are on other nodes, set LOCAL_WORLD_SIZE");
}

TEST(BadInput, RanksWithDifferentWorldSizesAreNamed) {
  const int port = free_port();
  Ranks one({0, 1}, 3, port, trainer(kShort));
  Ranks other({2}, 4, port, trainer(kShort));
  expect_one_line(other, "the world size is 4 here (WORLD_SIZE) and 3 on rank 0");
  EXPECT_EQ(one.wait(kRejectedWithin), (std::vector<int>{1, 1}));
  EXPECT_EQ(one.errors(), "");
}

TEST(BadInput, ARankThatIsStartedTwiceIsNamed) {
  const int port = free_port();
  Ranks ranks({0, 1, 1}, 3, port, trainer({"--timeout", "3"}));
  for (int code : ranks.wait(kRejectedWithin)) EXPECT_EQ(code, 1);
  EXPECT_TRUE(contains(ranks.errors(), "another process is already rank 1"));
}

}  // namespace
