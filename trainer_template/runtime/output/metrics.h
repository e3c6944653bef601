// The curve of a training run as JSON lines, one a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer_template/runtime/output/step_file.h"

namespace torchbridge::train {

struct Evaluation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;  // the task's, by name
};

// Rates and fractions are over the time since the previous step, on this rank; samples and tokens are those of all
// ranks.
struct StepMetrics {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0, samples_per_s = 0;
  double data_time_fraction = 0;        // of the time, spent waiting for the next batch
  std::optional<double> grad_norm;      // of the averaged gradients, before clipping
  std::optional<double> comm_fraction;  // of forward and backward, spent in DDP's all-reduces, in the last timed step
  // For language models: tflops is per rank, mfu the fraction of the device's peak.
  std::optional<double> tokens_per_s, tflops, mfu;
  bool skipped = false;  // the optimizer changed nothing, because the loss or a gradient was not finite
  std::optional<Evaluation> evaluation;
};

// Calls `take` with each number of the record and its name in metrics files, except "step" and "epoch".
void visit_numbers(const StepMetrics& record, const std::function<void(const std::string& name, double value)>& take);

// The same for an evaluation alone: "eval_loss" and so on.
void visit_numbers(const Evaluation& evaluation,
                   const std::function<void(const std::string& name, double value)>& take);

// {"step":1,"epoch":0,"loss":2.3,"lr":0.1,"samples_per_s":1000.0 ...}. Numbers read back as the same doubles; NaN and
// infinity are written as by Python's json module.
std::string to_json_line(const StepMetrics& record);

// For one rank.
class MetricsFile {
 public:
  // Keeps the run's lines up to `start.step`, and throws TrainError, as StepFile does.
  MetricsFile(const std::filesystem::path& path, const RunStart& start) : file_(path, start, "--metrics") {}
  void write(const StepMetrics& record) { file_.write(to_json_line(record)); }
  // Adds the evaluation of the last step done, which the previous start was stopped before. REQUIRES: nothing was
  // written yet.
  void add(const Evaluation& evaluation);
  void check_complete() const { file_.check_complete(); }

 private:
  StepFile file_;
};

}  // namespace torchbridge::train
