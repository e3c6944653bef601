// A run that resumes from a checkpoint equals the run that was never stopped.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  // Trains four epochs in all, or up to `max_steps`; the curve without checkpoints when `folder` is
  // empty.
  void train(int world_size, const fs::path& metrics, const std::string& checkpoints,
             int max_steps = 0) {
    Ranks ranks(world_size, command(metrics, checkpoints, max_steps));
    EXPECT_EQ(ranks.wait(), std::vector<int>(world_size, 0)) << ranks.errors();
  }
  Words command(const fs::path& metrics, const std::string& checkpoints, int max_steps = 0) {
    // Large enough for DDP to use several buckets once it has seen the order of gradients.
    Words words = trainer(
        {"--epochs", "4", "--max-steps", std::to_string(max_steps), "--metrics", metrics.string()});
    if (std::find(options_.begin(), options_.end(), "--model") == options_.end())
      words.insert(words.end(), {"--model", "mlp:600,500"});
    words.insert(words.end(), options_.begin(), options_.end());
    if (!checkpoints.empty())
      words.insert(words.end(), {"--checkpoint-dir", checkpoints, "--checkpoint-every", "10"});
    return words;
  }
  Words options_;
  TemporaryFolder folder_;
};

TEST_F(Resume, EqualsTheUndisturbedRun) {
  for (int world_size : {1, 2, 3}) {
    const std::string runs = folder_ / ("runs" + std::to_string(world_size));
    const fs::path whole = folder_ / "whole.jsonl",
                   parts = folder_ / ("parts" + std::to_string(world_size));
    train(world_size, whole, "");
    for (int steps : {1, 7, 33}) train(world_size, parts, runs, steps);
    train(world_size, parts, runs);
    EXPECT_EQ(losses(parts), losses(whole)) << world_size << " ranks";
  }
}

TEST_F(Resume, PrintsOnlyTheSettingsThatChanged) {
  const std::string runs = folder_ / "runs";
  train(1, folder_ / "metrics", runs, 10);
  Words words = command(folder_ / "metrics", runs, 20);
  std::erase(words, "--quiet");
  Ranks ranks(1, words);
  EXPECT_EQ(ranks.wait(), std::vector<int>(1, 0)) << ranks.errors();
  const std::string output = ranks.out(0);
  EXPECT_NE(output.find("; resumes from step 10 of 20"), std::string::npos) << output;
  EXPECT_NE(output.find("\n  max-steps 20 (was 10)\n"), std::string::npos) << output;
  EXPECT_EQ(output.find("batch-size"), std::string::npos) << output;
}

// 1,437 samples: 718 a rank, 22 batches of 32.
TEST_F(Resume, DropsTheSamplesThatMakeNoFullBatch) {
  options_ = {"--drop-last"};
  const fs::path whole = folder_ / "whole.jsonl", parts = folder_ / "parts.jsonl";
  train(2, whole, "");
  for (int steps : {7, 22, 30, 0}) train(2, parts, folder_ / "runs", steps);
  EXPECT_EQ(losses(whole).size(), 4u * 22);
  EXPECT_EQ(losses(parts), losses(whole));
}

// Each rank has other dropout masks, and a resumed run repeats them.
TEST_F(Resume, EachRankRestoresItsGenerator) {
  options_ = {"--task",       "text",
              "--model",      "gpt:layers=1,heads=2,width=32,context=16,dropout=0.3",
              "--batch-size", "4"};
  train(2, folder_ / "same.jsonl", "", 20);
  options_.push_back("--seed-per-rank");
  train(2, folder_ / "whole.jsonl", "", 20);
  for (int steps : {7, 20}) train(2, folder_ / "parts.jsonl", folder_ / "runs", steps);
  EXPECT_EQ(losses(folder_ / "parts.jsonl"), losses(folder_ / "whole.jsonl"));
  EXPECT_NE(losses(folder_ / "same.jsonl"), losses(folder_ / "whole.jsonl"));
  const auto of_rank = [&](const char* rank) {
    return folder_.read(std::string("runs/step-00000020/rank-0000") + rank + ".safetensors");
  };
  EXPECT_FALSE(of_rank("0").empty());
  EXPECT_NE(of_rank("0"), of_rank("1"));
}

// The generators that a checkpoint holds are those of its --seed-per-rank.
TEST_F(Resume, WithAnotherSeedPerRankTheGeneratorsBeginAnew) {
  const Words text = {"--task",       "text",
                      "--model",      "gpt:layers=1,heads=2,width=32,context=16,dropout=0.3",
                      "--batch-size", "4"};
  for (const bool is_per_rank : {true, false}) {
    const std::string runs = is_per_rank ? "per_rank" : "same";
    const fs::path metrics = folder_ / (runs + ".jsonl");
    const auto set = [&](bool per_rank) {
      options_ = text;
      if (per_rank) options_.push_back("--seed-per-rank");
    };
    set(!is_per_rank);
    train(2, metrics, folder_ / runs, 10);
    set(is_per_rank);
    Ranks changed(2, command(metrics, folder_ / runs, 20));
    expect_success(changed);
    EXPECT_EQ(changed.errors(),
              std::string("trainer: the checkpoint at step 10 was written with") +
                  (is_per_rank ? "out" : "") +
                  " --seed-per-rank: the random numbers of all ranks begin anew from --seed\n");
    const auto generators_of = [&](int rank) {
      return folder_.read(runs + "/step-00000020/rank-0000" + std::to_string(rank) +
                          ".safetensors");
    };
    EXPECT_FALSE(generators_of(0).empty());
    EXPECT_EQ(generators_of(0) != generators_of(1), is_per_rank);
    Ranks again(2, command(metrics, folder_ / runs, 30));
    expect_success(again);
    EXPECT_EQ(again.errors(), "");
  }
}

// Each rank has other running statistics, and writes a part of the file: large enough for the
// second rank's to hold some of them.
TEST_F(Resume, BatchNormalisationResumesFromTheStatisticsOfRank0) {
  options_ = {"--model", "cnn:64,512", "--batch-size", "8", "--eval-every", "6"};
  train(2, folder_ / "whole.jsonl", "", 6);
  for (int steps : {4, 6}) train(2, folder_ / "parts.jsonl", folder_ / "runs", steps);
  const auto evaluated = [&](const char* file) {
    const std::string text = folder_.read(file);
    return text.substr(std::min(text.rfind("\"eval_loss\""), text.size()));
  };
  EXPECT_TRUE(contains(evaluated("whole.jsonl"), "eval_accuracy"));
  EXPECT_EQ(evaluated("parts.jsonl"), evaluated("whole.jsonl"));
}

// A checkpoint contains the running statistics of rank 0, so every rank evaluates with them.
TEST_F(Resume, AnEvaluationIsThatOfTheCheckpoint) {
  const Words kAverages[] = {{}, {"--zero", "1", "--zero-gradients", "reduce-scatter"}};
  for (const Words& average : kAverages) {
    const std::string runs = folder_ / ("runs" + std::to_string(average.size()));
    Words words = trainer({"--model", "cnn:8,16", "--batch-size", "16", "--max-steps", "40",
                           "--checkpoint-dir", runs});
    words.insert(words.end(), average.begin(), average.end());
    const auto evaluated = [&] {
      Ranks ranks(4, words);
      expect_success(ranks);
      return ranks.out(0).substr(0, ranks.out(0).find(" samples/s"));
    };
    const auto without_speed = [](const std::string& line) {
      return line.substr(0, line.rfind(','));
    };
    const std::string trained = without_speed(evaluated()), loaded = without_speed(evaluated());
    EXPECT_TRUE(contains(trained, "trainer: 40 steps, accuracy ")) << trained;
    EXPECT_EQ(trained, loaded);
  }
}

// Of another model, too, whose statistics are those of each rank's own batches until then.
TEST_F(Resume, AnEvaluationOfAnotherModelIsThatOfTheCheckpoint) {
  const auto evaluated = [&](const std::string& metrics) {
    Ranks ranks(
        2, {in_build("bin/averaged_trainer"), "--data", in_source("data/digits"), "--max-steps",
            "30", "--quiet", "--metrics", folder_ / metrics, "--checkpoint-dir", folder_ / "runs"});
    expect_success(ranks);
    return ranks.out(0).substr(0, ranks.out(0).find(" samples/s"));
  };
  const auto without_speed = [](const std::string& line) {
    return line.substr(0, line.rfind(','));
  };
  const std::string trained = without_speed(evaluated("trained.jsonl"));
  EXPECT_TRUE(contains(trained, "mean_loss ")) << trained;
  EXPECT_EQ(without_speed(evaluated("loaded.jsonl")), trained);
}

// Each start draws its weights, the one that resumes after the generators of the checkpoint.
TEST_F(Resume, AnotherModelThatIsMadeAfterTheSessionChangesNoStep) {
  const auto train_to = [&](int steps, const std::string& metrics, const std::string& runs) {
    Ranks ranks(2, {in_build("bin/averaged_trainer"), "--data", in_source("data/digits"),
                    "--max-steps", std::to_string(steps), "--quiet", "--metrics", folder_ / metrics,
                    "--checkpoint-dir", folder_ / runs});
    expect_success(ranks);
  };
  train_to(6, "whole.jsonl", "whole");
  for (const int steps : {4, 6}) train_to(steps, "parts.jsonl", "parts");
  EXPECT_EQ(losses(folder_ / "parts.jsonl"), losses(folder_ / "whole.jsonl"));
}

// The first loss scale overflows; the learning rate is reduced while the loss stays high.
TEST_F(Resume, KeepsLossScaleAndPlateau) {
  options_ = {"--precision",
              "fp16",
              "--loss-scale",
              "134217728",
              "--lr-schedule",
              "plateau:patience=0,factor=0.5,threshold=0.2",
              "--eval-every",
              "3",
              "--grad-accumulation",
              "2",
              "--zero",
              "1"};
  train(2, folder_ / "whole.jsonl", "", 20);
  // Steps 1 to 7 and 9 overflow: one run ends after a step that overflows, one after a step that
  // does not.
  for (int steps : {8, 9, 20}) train(2, folder_ / "parts.jsonl", folder_ / "runs", steps);
  EXPECT_EQ(losses(folder_ / "parts.jsonl"), losses(folder_ / "whole.jsonl"));
  const std::string manifest = folder_.read("runs/step-00000020/manifest.json");
  EXPECT_TRUE(contains(manifest, "\"grad_scaler.scale\""));
  EXPECT_TRUE(contains(manifest, "\"plateau.best\""));
}

// The loss of a rate of 1e-9 falls by less than the threshold.
TEST_F(Resume, ThePlateauBeginsAfterTheWarmUp) {
  options_ = {"--lr",         "1e-9", "--warmup-steps", "6",
              "--eval-every", "2",    "--lr-schedule",  "plateau:patience=0,eps=0"};
  train(1, folder_ / "whole.jsonl", "", 12);
  for (const int steps : {3, 12}) train(1, folder_ / "parts.jsonl", folder_ / "runs", steps);
  for (const char* file : {"whole.jsonl", "parts.jsonl"}) {
    std::istringstream lines(folder_.read(file));
    std::vector<double> rates;
    for (std::string line; std::getline(lines, line);)
      rates.push_back(nlohmann::json::parse(line).at("lr"));
    ASSERT_EQ(rates.size(), 12u) << file;
    EXPECT_DOUBLE_EQ(rates[5], 1e-9) << file;   // the end of the warm-up, after evaluations 2 and 4
    EXPECT_DOUBLE_EQ(rates[7], 1e-9) << file;   // evaluation 6 is the best one so far
    EXPECT_DOUBLE_EQ(rates[8], 1e-10) << file;  // 8 is no better
  }
}

// It would be too old for the run behind it.
TEST_F(Resume, TheStateOfAScheduleIsForgottenByARunWithoutIt) {
  const Words plateau = {"--lr-schedule", "plateau:patience=0", "--eval-every", "3"};
  options_ = plateau;
  train(1, folder_ / "curve", folder_ / "runs", 6);
  EXPECT_TRUE(contains(folder_.read("runs/step-00000006/manifest.json"), "\"plateau.best\""));
  options_.clear();
  train(1, folder_ / "curve", folder_ / "runs", 9);
  EXPECT_FALSE(contains(folder_.read("runs/step-00000009/manifest.json"), "\"plateau."));
  options_ = plateau;
  Ranks again(1, command(folder_ / "curve", folder_ / "runs", 12));
  EXPECT_EQ(again.wait(), (std::vector<int>{0}));
  EXPECT_TRUE(contains(again.errors(), "the checkpoint of step 9 has no 'plateau'"))
      << again.errors();
}

// In every run, and with synchronous and asynchronous saves. Only the id of the run and its
// training time differ.
TEST_F(Resume, EqualStepsGiveEqualFiles) {
  const Words kModels[] = {{"--model", "mlp:600,500", "--optimizer", "adamw"},
                           {"--model", "cnn:64,512", "--batch-size", "8", "--zero", "1"}};
  const auto content = [&](const std::string& name) {
    const std::string text = folder_.read(name);
    if (!name.ends_with("manifest.json")) return text;
    auto manifest = nlohmann::json::parse(text);
    EXPECT_EQ(manifest.erase("xxh3_128"), 1u);
    EXPECT_EQ(manifest["state"].erase("run.seconds"), 1u);
    EXPECT_EQ(manifest.erase("run"), 1u);
    return manifest.dump();
  };
  for (std::size_t i = 0; i < std::size(kModels); ++i) {
    const std::string expected = "still" + std::to_string(i), runs = "going-on" + std::to_string(i);
    options_ = kModels[i];
    train(2, folder_ / (expected + ".jsonl"), folder_ / expected, 30);
    options_.push_back("--async-save");
    train(2, folder_ / (runs + ".jsonl"), folder_ / runs, 30);
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / expected)) {
      if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), folder_ / expected));
    }
    names.erase(".lock");  // names the run
    EXPECT_GE(names.size(), 18u) << "three steps of at least six files";
    for (const std::string& name : names)
      EXPECT_TRUE(content(runs + "/" + name) == content(expected + "/" + name)) << name;
  }
}

TEST_F(Resume, WorksAtAnotherWorldSize) {
  train(3, folder_ / "curve", folder_ / "runs", 7);
  train(2, folder_ / "curve", folder_ / "runs", 20);
  EXPECT_TRUE(fs::exists(folder_ / "runs/step-00000020/rank-00001.safetensors"));
}

// Step by step from 1.
std::vector<double> learning_rates(const fs::path& metrics) {
  std::ifstream lines(metrics);
  std::vector<double> rates;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.contains("lr")) rates.push_back(record["lr"]);
  }
  return rates;
}

// Two epochs of four with 4 ranks, the others with one: 12 steps an epoch, then 45.
TEST_F(Resume, TheLearningRateFollowsTheSamplesAtAnotherGlobalBatch) {
  options_ = {"--model", "mlp:8", "--lr-schedule", "cosine"};
  train(4, folder_ / "whole", "");
  train(4, folder_ / "curve", folder_ / "runs", 24);  // the checkpoint of the end of another curve
  const std::vector<double> whole = learning_rates(folder_ / "whole");
  ASSERT_EQ(whole.size(), 48u);
  Ranks alone(1, command(folder_ / "curve", folder_ / "runs"));
  expect_success(alone);
  EXPECT_EQ(
      alone.errors(),
      "trainer: the global batch is 32 samples, and was 128 up to step 24: --lr-schedule, "
      "--warmup-steps and "
      "--max-steps follow the samples (a step counts as 0.267 steps); --lr stays as given, and "
      "--checkpoint-every and --eval-every count steps of any size\n");
  const std::vector<double> rates = learning_rates(folder_ / "curve");
  ASSERT_EQ(rates.size(), 24u + 90);
  for (std::size_t epoch_third = 0; epoch_third < 6; ++epoch_third)
    EXPECT_NEAR(rates[24 + 15 * epoch_third], whole[24 + 4 * epoch_third], 1e-15) << epoch_third;
}

// As in an elastic run to which a node comes: with two ranks an epoch has half a batch for each.
TEST_F(Resume, GoesOnWithMoreRanksThanTheBatchesOfAnEpoch) {
  std::string rows = "a,b\n";
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + std::to_string(2 * i) + "\n";
  for (const char* name : {"train.csv", "test.csv"}) folder_.write(name, rows);
  options_ = {"--task", "table", "--data", folder_.path(), "--batch-size", "32", "--lr", "0.001"};
  train(1, folder_ / "curve", folder_ / "runs", 3);
  Ranks two(2, command(folder_ / "curve", folder_ / "runs"));
  expect_success(two);
  EXPECT_TRUE(
      contains(two.errors(),
               "trainer: --batch-size 32 is larger than a rank's part of the data set: each "
               "step takes 20 samples a rank, of 40 for 2 ranks\n"))
      << two.errors();
  EXPECT_TRUE(contains(two.errors(), "the global batch is 40 samples, and was 32 up to step 3"))
      << two.errors();
  EXPECT_EQ(learning_rates(folder_ / "curve").size(), 6u) << "the epoch's rest, and two epochs";
}

// Whatever makes it.
TEST_F(Resume, TheLearningRateIsTheSameToTheBitAtTheSameGlobalBatch) {
  const Words common = {"--model", "mlp:8", "--lr-schedule", "one-cycle", "--warmup-steps", "5"};
  const auto set = [&](const Words& more) {
    options_ = common;
    options_.insert(options_.end(), more.begin(), more.end());
  };
  set({});
  train(4, folder_ / "whole", "", 40);
  Ranks(4, command(folder_ / "curve", folder_ / "runs", 40), {{"TORCHBRIDGE_FAIL", "step:25"}})
      .wait();
  set({"--batch-size", "64"});
  train(2, folder_ / "curve", folder_ / "runs", 40);
  EXPECT_EQ(learning_rates(folder_ / "curve"), learning_rates(folder_ / "whole"));
}

// The smaller steps of one rank, with and without a kill among them.
TEST_F(Resume, ARunOfSeveralGlobalBatchesEqualsTheUndisturbedOne) {
  options_ = {"--model", "mlp:8", "--lr-schedule", "cosine", "--warmup-steps", "12"};
  train(2, folder_ / "first", folder_ / "first-runs", 10);
  for (const char* name : {"whole", "parts"}) {
    fs::copy(folder_ / "first", folder_ / name);
    fs::copy(folder_ / "first-runs", folder_ / (name + std::string("-runs")),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  train(1, folder_ / "whole", folder_ / "whole-runs", 40);
  Ranks killed(1, command(folder_ / "parts", folder_ / "parts-runs", 40),
               {{"TORCHBRIDGE_FAIL", "step:25"}});
  EXPECT_EQ(killed.wait(), std::vector<int>{128 + SIGKILL}) << killed.errors();
  train(1, folder_ / "parts", folder_ / "parts-runs", 40);
  const std::vector<double> whole = learning_rates(folder_ / "whole");
  // Of the 30 steps that --max-steps leaves, 13 end the epoch of 1437 samples: they and the other
  // 17 are 25 and 34 now.
  EXPECT_EQ(whole.size(), 10u + 25 + 34);
  EXPECT_EQ(learning_rates(folder_ / "parts"), whole);
  EXPECT_EQ(losses(folder_ / "parts"), losses(folder_ / "whole"));
}

TEST_F(Resume, AfterAKillEqualsTheUndisturbedRun) {
  const std::string runs = folder_ / "runs";
  const fs::path whole = folder_ / "whole.jsonl", killed = folder_ / "killed.jsonl";
  train(2, whole, "");
  {
    Ranks ranks(2, command(killed, runs));
    ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "runs/step-00000010/DONE"); }));
    ranks.kill_rank(1, SIGKILL);
    const std::vector<int> codes = ranks.wait(std::chrono::seconds(10));
    EXPECT_NE(codes[0], -1) << "rank 0 hung";
  }
  train(2, killed, runs);
  EXPECT_EQ(losses(killed), losses(whole));
}

// One-cycle gives the optimizer a momentum, whatever --momentum is.
TEST_F(Resume, OneCycleWithoutMomentumEqualsTheUndisturbedRun) {
  const std::string runs = folder_ / "runs";
  const fs::path whole = folder_ / "whole", killed = folder_ / "killed";
  options_ = {"--model", "mlp:8", "--momentum", "0", "--lr-schedule", "one-cycle"};
  train(2, whole, "", 40);
  Ranks(2, command(killed, runs, 40), {{"TORCHBRIDGE_FAIL", "step:25"}}).wait();
  train(2, killed, runs, 40);
  EXPECT_EQ(losses(killed), losses(whole));
}

// A start of the same command, as after a requeue, repeats nothing that the run has saved since.
TEST_F(Resume, TheSameCommandGoesOnHoweverTheRunBegan) {
  const std::string runs = folder_ / "runs", others = folder_ / "others";
  train(2, folder_ / "first", others, 20);
  fs::copy(others, folder_ / "odd\xff",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const std::string begin :
       {"none", "others/step-00000020", "others", "odd\xff", "others/latest"}) {
    std::filesystem::remove_all(runs);
    const fs::path curve = folder_ / "curve";
    const auto set = [&](const std::string& path) {
      options_ = {"--model", "mlp:600,500", "--resume",
                  begin == "none" ? begin : (folder_ / path).string()};
    };
    set(begin);
    Ranks(2, command(curve, runs, 60), {{"TORCHBRIDGE_FAIL", "step:25"}}).wait();
    if (begin == "others/latest") {  // which is another checkpoint now
      options_.clear();
      train(2, folder_ / "first", others, 30);
      set(begin);
    }
    Ranks again(2, command(curve, runs, 60));
    expect_success(again);
    set(begin == "odd\xff" ? "odd\\xff" : begin);  // as a message has it
    EXPECT_EQ(again.errors(), "trainer: checkpoint folder '" + runs +
                                  "' has checkpoints of this run: it goes on from the newest one, "
                                  "not by --resume " +
                                  options_.back() + "\n");
    // And a line of step 20, whose evaluation its checkpoint does not have.
    EXPECT_EQ(learning_rates(curve).size(), begin == "none" ? 60u : 41u) << begin;
    EXPECT_FALSE(fs::exists(folder_ / "runs/step-00000030.aside")) << begin;
    std::filesystem::remove(curve);
  }
  options_.insert(options_.end(), {"--lr", "0.05"});
  Ranks other(2, command(folder_ / "curve", runs, 70));
  expect_success(other);
  EXPECT_TRUE(contains(other.errors(), "it goes on from the newest one")) << other.errors();
  options_ = {"--resume", "none", "--lr", "0.01"};
  Ranks fresh(2, command(folder_ / "curve", runs, 60));
  expect_error(fresh, "contains checkpoints, and --resume none starts a new run");
}

// The weights that a run began with are needed no more.
TEST_F(Resume, TheSameCommandGoesOnThoughItsInitialWeightsAreGone) {
  const fs::path weights = folder_ / "weights.safetensors", curve = folder_ / "curve";
  train(1, folder_ / "first", folder_ / "others", 10);
  fs::copy(folder_ / "others/step-00000010/model.safetensors", weights);
  options_ = {"--init-from", weights};
  train(2, curve, folder_ / "runs", 10);
  fs::remove(weights);
  train(2, curve, folder_ / "runs", 20);
  EXPECT_EQ(losses(curve).size(), 20u);
  Ranks fresh(2, command(folder_ / "none", folder_ / "fresh", 10));
  expect_error(fresh, "weights.safetensors");
}

// In its own folder: again with the same options it goes on, with other ones it goes back again.
TEST_F(Resume, TheSameCommandGoesBackOnce) {
  const std::string runs = folder_ / "runs";
  train(2, folder_ / "first", runs, 30);
  fs::copy(in_source("data/digits"), folder_ / "data", fs::copy_options::recursive);
  options_ = {"--resume", folder_ / "runs/step-00000010", "--lr", "0.02", "--keep", "9"};
  Ranks(2, command(folder_ / "curve", runs, 60), {{"TORCHBRIDGE_FAIL", "step:25"}}).wait();
  EXPECT_TRUE(fs::exists(folder_ / "runs/step-00000030.aside"));
  const auto first_line = [&](const Words& more) {
    Words words = command(folder_ / "curve", runs, 60);
    words.insert(words.end(), more.begin(), more.end());
    std::erase(words, "--quiet");
    Ranks ranks(2, words);
    expect_success(ranks);
    return ranks.out(0);
  };
  EXPECT_TRUE(
      contains(first_line({"--workers", "2", "--device", "cpu", "--data", folder_ / "data"}),
               "resumes from step 30 of 60"));
  EXPECT_TRUE(contains(first_line({"--lr", "0.03"}), "resumes from step 10 of 60"));
}

// The next older one may be of another run.
TEST_F(Resume, TheSameCommandGoesOnThoughItsNewestCheckpointIsDamaged) {
  const std::string runs = folder_ / "runs";
  train(2, folder_ / "first", runs, 10);
  options_ = {"--resume", folder_ / "runs/step-00000010", "--lr", "0.02"};
  const auto start = [&](const char* fault) {
    Ranks ranks(2, command(folder_ / "curve", runs, 60), {{"TORCHBRIDGE_FAIL", fault}});
    ranks.wait();
    return ranks.errors();
  };
  start("step:15");  // has saved step 20
  folder_.write("runs/step-00000020/model.safetensors", "damaged");
  EXPECT_TRUE(contains(start("step:15"), "checkpoint skipped: "));
  EXPECT_TRUE(contains(start("step:5"), "it goes on from the newest one, not by --resume"));
}

// Whoever gives it, by mistake or as the same command twice: no line of another run is lost.
TEST_F(Resume, CopiesTheFilesOfAnotherRun) {
  const auto run = [&](int steps, const char* checkpoints, const Words& more = {}) {
    Words words = trainer({"--max-steps", std::to_string(steps), "--metrics", folder_ / "curve",
                           "--sample-log", folder_ / "sample_log"});
    if (*checkpoints)
      words.insert(words.end(),
                   {"--checkpoint-dir", folder_ / checkpoints, "--checkpoint-every", "2"});
    words.insert(words.end(), more.begin(), more.end());
    Ranks ranks(2, words);
    expect_success(ranks);
    return ranks.errors();
  };
  // The copies of both files with this number have their earlier contents, and a message names
  // them.
  const auto expect_copied = [&](int number, const std::string& errors, const std::string& curve,
                                 const std::string& sample_log, const std::string& reason) {
    for (const auto& [name, before] :
         {std::pair("curve", curve), std::pair("sample_log", sample_log)}) {
      const std::string aside = std::string(name) + ".aside-" + std::to_string(number);
      EXPECT_EQ(folder_.read(aside), before);
      EXPECT_TRUE(contains(errors, "trainer: '" + (folder_ / name).string() + "' " + reason +
                                       ": copied to '" + (folder_ / aside).string() + "'\n"));
    }
  };
  EXPECT_EQ(run(3, "own"), "");
  EXPECT_EQ(run(6, "own"), "");
  EXPECT_EQ(losses(folder_ / "curve").size(), 6u);
  const std::string curve = folder_.read("curve"), sample_log = folder_.read("sample_log");

  expect_copied(1, run(3, ""), curve, sample_log, "belongs to another run");  // a fresh start
  EXPECT_EQ(losses(folder_ / "curve").size(), 3u);
  EXPECT_EQ(lines_in(folder_.read("sample_log")), 3);

  folder_.write("curve", curve);
  folder_.write("sample_log", sample_log);
  Ranks other(2, trainer({"--max-steps", "4", "--checkpoint-dir", folder_ / "other"}));
  expect_success(other);
  // One that goes on, with the evaluation of the step before.
  expect_copied(2, run(5, "other"), curve, sample_log, "belongs to another run");
  EXPECT_TRUE(folder_.read("curve").starts_with("{\"step\":4,"));
  EXPECT_EQ(lines_in(folder_.read("curve")), 2);

  // From a copy of a checkpoint another run begins; that of the run itself goes on in its file, but
  // for the steps that come anew.
  folder_.write("curve", curve);
  folder_.write("sample_log", sample_log);
  expect_copied(3, run(5, "branch", {"--resume", folder_ / "own/step-00000004"}), curve, sample_log,
                "belongs to another run");
  folder_.write("curve", curve);
  folder_.write("sample_log", sample_log);
  expect_copied(4, run(5, "own", {"--resume", folder_ / "own/step-00000004/."}), curve, sample_log,
                "has records after step 4, from which this run resumes");
  EXPECT_EQ(losses(folder_ / "curve").size(), 5u);
}

TEST_F(Resume, ReportsACompletedRun) {
  train(1, folder_ / "curve", folder_ / "runs", 5);
  Ranks again(1, {in_build("bin/trainer"), "--max-steps", "5", "--model", "mlp:600,500",
                  "--checkpoint-dir", folder_ / "runs"});
  EXPECT_EQ(again.wait(), std::vector<int>{0}) << again.errors();
  EXPECT_TRUE(contains(again.out(0), "the run is complete"));
}

// Ten steps an epoch. The path of the data may change, and between two epochs the data may change
// too.
// The shapes of the weights are the same.
TEST_F(Resume, RejectsAModelWithOtherHeads) {
  const auto resume = [&](const std::string& model, const char* steps) {
    return Ranks(2, trainer({"--task", "text", "--model", model, "--batch-size", "4", "--max-steps",
                             steps, "--checkpoint-dir", folder_ / "runs"}));
  };
  const std::string two_heads = "gpt:layers=1,heads=2,width=32,context=16";
  Ranks begin = resume(two_heads, "2");
  EXPECT_EQ(begin.wait(), (std::vector<int>{0, 0})) << begin.errors();
  Ranks other = resume("gpt:layers=1,heads=4,width=32,context=16", "4");
  expect_one_line(other, "the checkpoint at step 2 was written with --model " + two_heads +
                             ", this run has --model gpt:layers=1,heads=4,width=32,context=16: "
                             "give --model " +
                             two_heads);
  Ranks same = resume("gpt:tiny,heads=2,layers=1,context=16,width=32,dropout=0.1", "4");
  EXPECT_EQ(same.wait(), (std::vector<int>{0, 0})) << same.errors();
}

TEST_F(Resume, RejectsOtherDataInTheMiddleOfAnEpoch) {
  for (const char* name : {"data", "moved", "other"}) {
    fs::create_directory(folder_ / name);
    std::string rows = "x,y\n";
    for (int row = 0; row < 80; ++row)
      rows += std::to_string(row) + "," +
              std::to_string(row == 79 && name == std::string("other") ? 1 : 2 * row) + "\n";
    folder_.write(std::string(name) + "/train.csv", rows);
    folder_.write(std::string(name) + "/test.csv", rows);
  }
  const auto train_with = [&](const char* data, int steps) {
    return trainer({"--task", "table", "--batch-size", "4", "--epochs", "3", "--data",
                    folder_ / data, "--max-steps", std::to_string(steps), "--checkpoint-dir",
                    folder_ / "runs"});
  };
  const std::pair<const char*, int> kRuns[] = {{"data", 3}, {"moved", 10}, {"other", 13}};
  for (const auto& [data, steps] : kRuns) {
    Ranks ranks(2, train_with(data, steps));
    expect_success(ranks);
  }
  Ranks back(2, train_with("data", 16));
  expect_one_line(back,
                  "the checkpoint at step 13 was written in an epoch of other training data of the "
                  "same size (--data " +
                      (folder_ / "other").string() + "), this run has --data " +
                      (folder_ / "data").string() +
                      "; resuming would skip and repeat samples: give the data of the checkpoint");

  // A relative path to the same folder, now with other rows.
  fs::copy_file(folder_ / "data/train.csv", folder_ / "other/train.csv",
                fs::copy_options::overwrite_existing);
  Ranks changed(
      2,
      {"/bin/sh", "-c",
       "cd " + folder_.path().string() + "; exec " + in_build("bin/trainer") +
           " --quiet --task table --batch-size 4 --epochs 3 --data other --checkpoint-dir runs"});
  expect_one_line(changed, "of the same size, which --data " + (folder_ / "other").string() +
                               " contained then");
}

// A model's weights are by column: with another order of them it would predict nonsense.
TEST_F(Resume, RejectsATableWithOtherColumns) {
  const auto write = [&](const std::string& header) {
    std::string rows = header + "\n";
    for (int i = 0; i < 40; ++i)
      rows += std::to_string(i) + "," + std::to_string(i * i % 7) + "," + std::to_string(i) + "\n";
    for (const char* name : {"train.csv", "test.csv"}) folder_.write(name, rows);
  };
  options_ = {"--task", "table", "--model", "linear", "--data", folder_.path()};
  write("a,b,y");
  train(2, folder_ / "curve", folder_ / "runs");
  write("b,a,y");
  Ranks ranks(2, command(folder_ / "curve", folder_ / "runs"));
  expect_error(ranks,
               "column 0 is 'b' in the training set and 'a' in the checkpoint: both need the same "
               "columns");
}

TEST_F(Resume, SkipsADamagedCheckpoint) {
  train(2, folder_ / "curve", folder_ / "runs", 15);
  folder_.write("runs/step-00000015/model.safetensors", "damaged");
  Ranks again(2, trainer({"--max-steps", "16", "--model", "mlp:600,500", "--checkpoint-dir",
                          folder_ / "runs"}));
  EXPECT_EQ(again.wait(), (std::vector<int>{0, 0})) << again.errors();
  EXPECT_TRUE(contains(again.error(0), "step-00000015: model.safetensors has 7 bytes"));
  EXPECT_EQ(again.error(1), "");
  EXPECT_TRUE(fs::exists(folder_ / "runs/step-00000016/DONE"));
}

}  // namespace
