// Every option with another value on one rank, as a wrapper script that differs from node to node
// gives it: it is rejected by name before any work, or it is harmless. Without the check some runs
// would hang, some end by a signal, and some train models that drift apart.
#include <algorithm>
#include <chrono>
#include <set>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

namespace {

struct Row {
  std::string option, zero, one;  // values on rank 0, and on rank 1; empty: it is not given
};

std::string argument(const std::string& option, const std::string& value) {
  return value.empty() ? "" : " " + option + "=" + value;
}

// The value as messages show it.
std::string shown(const Row& row, const std::string& value) {
  if (value == "true" || value == "false") return value == "true" ? "yes" : "no";
  if (row.zero.empty()) return value.empty() ? "not set" : "set";
  return value;
}

class DifferentOptions : public testing::Test {
 protected:
  DifferentOptions() { folder_.write("some.pt", ""); }

  // The rows of each run: all in one run, or with TORCHBRIDGE_COMPLETE=1 one run for each row.
  static std::vector<std::vector<Row>> runs_of(const std::vector<Row>& rows) {
    if (!getenv("TORCHBRIDGE_COMPLETE")) return {rows};
    std::vector<std::vector<Row>> alone;
    for (const Row& row : rows) alone.push_back({row});
    return alone;
  }

  // Two ranks with rank 0's values of `all`, except that rank 1 has its own values of `different`.
  // `more` is for both.
  static Words command(const std::string& more, const std::vector<Row>& all,
                       const std::vector<Row>& different) {
    std::string zero, one;
    for (const Row& row : all) {
      const bool differs = std::ranges::count(different, row.option, &Row::option) > 0;
      zero += argument(row.option, row.zero);
      one += argument(row.option, differs ? row.one : row.zero);
    }
    return {"/bin/sh", "-c",
            "if [ $RANK = 0 ]; then exec " + in_build("bin/trainer") + more + zero +
                "; else exec " + in_build("bin/trainer") + more + one + "; fi"};
  }

  void expect_rejected(const std::string& more, const std::vector<Row>& rows) {
    for (const auto& different : runs_of(rows)) {
      Ranks ranks(2, command(more, rows, different));
      for (const Row& row : different)
        expect_one_line(ranks, row.option + " is " + shown(row, row.one) + " here and " +
                                   shown(row, row.zero) + " on rank 0");
    }
    seen(rows);
  }
  // With the values in either order on the ranks. $RUN is the number of the run.
  void expect_harmless(const std::string& more, std::vector<Row> rows) {
    const std::string later = std::to_string(std::chrono::system_clock::to_time_t(
        std::chrono::system_clock::now() + std::chrono::hours(1)));
    for (const bool swapped : {false, true}) {
      if (swapped) std::ranges::for_each(rows, [](Row& row) { std::swap(row.zero, row.one); });
      for (const auto& different : runs_of(rows)) {
        Ranks ranks(2, command(more, rows, different),
                    {{"SLURM_JOB_END_TIME", later}, {"RUN", std::to_string(++runs_)}});
        expect_success(ranks);
        EXPECT_EQ(ranks.errors(), "");
      }
    }
    seen(rows);
  }
  void seen(const std::vector<Row>& rows) {
    for (const Row& row : rows) seen_.insert(row.option);
  }

  static std::set<std::string> options_in_help() {
    TemporaryFolder folder;
    Process help({in_build("bin/trainer"), "--help"}, {}, folder / "help");
    EXPECT_EQ(help.wait(std::chrono::seconds(60)), 0);
    std::set<std::string> names;
    std::istringstream lines(help.out());
    for (std::string line; std::getline(lines, line);) {
      std::string name;
      if (line.starts_with("  --") && std::istringstream(line) >> name) names.insert(name);
    }
    return names;
  }

  TemporaryFolder folder_;
  std::set<std::string> seen_;
  int runs_ = 0;
};

TEST_F(DifferentOptions, AreRejectedByNameOrHarmless) {
  const std::string file = folder_ / "some.pt", runs = folder_ / "runs";
  expect_rejected(" --quiet", {
                                  {"--model", "mlp:8", "mlp:9"},
                                  {"--init-from", "", file},
                                  {"--epochs", "1", "2"},
                                  {"--max-steps", "3", "4"},
                                  {"--batch-size", "8", "16"},
                                  {"--optimizer", "sgd", "adam"},
                                  {"--lr", "0.1", "0.2"},
                                  {"--lr-schedule", "constant", "cosine"},
                                  {"--warmup-steps", "0", "1"},
                                  {"--momentum", "0.9", "0.8"},
                                  {"--weight-decay", "0", "0.5"},
                                  {"--no-decay", "bias", "seen"},
                                  {"--no-decay-1d", "false", "true"},
                                  {"--grad-accumulation", "1", "2"},
                                  {"--accumulation-mean", "samples", "batches"},
                                  {"--clip-norm", "0", "1"},
                                  {"--early-stop", "0", "1"},
                                  {"--on-nan", "stop", "skip"},
                                  {"--max-skips", "30", "3"},
                                  {"--seed", "0", "1"},
                                  {"--order", "shuffled", "permuted"},
                                  {"--deterministic", "false", "true"},
                                  {"--precision", "fp32", "bf16"},
                                  {"--loss-scale", "65536", "1024"},
                                  {"--zero", "0", "1"},
                                  {"--zero-gradients", "auto", "all-reduce"},
                                  {"--fp32-precision", "auto", "tf32"},
                                  {"--grad-comm", "fp32", "bf16"},
                                  {"--seed-per-rank", "false", "true"},
                                  {"--drop-last", "false", "true"},
                                  {"--skip-unreadable", "false", "true"},
                                  {"--checkpoint-dir", "", runs},
                                  {"--checkpoint-every", "10", "20"},
                                  {"--async-save", "false", "true"},
                                  {"--on-pending-save", "wait", "skip"},
                                  {"--resume", "auto", "none"},
                                  {"--eval-every", "2", "3"},
                                  {"--compiled-eval", "", file},
                              });
  expect_rejected(" --quiet",
                  {{"--task", "digits", "text"},
                   {"--cudnn-benchmark", "false", "true"}});  // conflicts with --deterministic
  expect_rejected(" --quiet --init-from " + file, {{"--predict", "", file}});
  expect_rejected(" --quiet --task text --checkpoint-dir " + runs, {{"--generate", "x", "y"}});

  const std::string digits = in_source("data/digits");
  expect_harmless(" --max-steps 15 --checkpoint-every 5 --checkpoint-dir " + runs + "$RUN",
                  {
                      {"--data", digits, digits + "/."},
                      {"--keep", "1", "2"},
                      {"--keep-every", "0", "5"},
                      {"--save-mb-per-s", "0", "100"},
                      {"--metrics", "", folder_ / "curve$RUN"},
                      {"--sample-log", "", folder_ / "sample_log$RUN"},
                      {"--tensorboard", "", folder_ / "events"},
                      {"--no-grad-norm", "false", "true"},
                      {"--peak-tflops", "0", "1"},
                      {"--profile", "1", "2"},
                      {"--profile-file", folder_ / "zero$RUN", folder_ / "one$RUN"},
                      {"--progress", "lines", "bar"},
                      {"--quiet", "true", "false"},
                      {"--grace", "0", "30"},
                      {"--stop-before-limit", "0", "5"},
                      {"--init-method", "", "env://"},
                      {"--device", "auto", "cpu"},
                      {"--workers", "0", "2"},
                      {"--timeout", "60", "50"},
                      {"--heartbeat-timeout", "0", "4"},
                      {"--join-timeout", "30", "40"},
                      {"--log-every", "5", "1"},
                  });
  // Of the last run, whose rank 0 has these options.
  EXPECT_EQ(losses(folder_ / ("curve" + std::to_string(runs_))).size(), 15u);
  EXPECT_EQ(lines_in(folder_.read("sample_log" + std::to_string(runs_))), 15);

  const std::string text =
      " --quiet --task text --model gpt:layers=1,heads=1,width=8,context=8 --checkpoint-dir " +
      (folder_ / "text").string();
  Ranks trained(1, {"/bin/sh", "-c", "exec " + in_build("bin/trainer") + text + " --max-steps 1"});
  expect_success(trained);
  expect_harmless(text + " --generate x",
                  {{"--generate-length", "3", "4"}, {"--temperature", "0", "0.5"}});

#ifdef MPI_BACKEND
  Ranks backends(
      2, command(" --quiet", {{"--backend", "gloo", "mpi"}}, {{"--backend", "gloo", "mpi"}}));
  expect_one_line(backends,
                  "the backend is mpi here and gloo on rank 0; all ranks need the same one");
#endif
  // --backend is tested above; the others have no value in a run.
  seen_.insert({"--backend", "--config", "--print-config", "--version"});
  EXPECT_EQ(options_in_help(), seen_);
}

}  // namespace
