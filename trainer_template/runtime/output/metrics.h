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

// Rates and shares are of the time since the step before, on this rank; samples and tokens are those of all ranks.
struct StepRecord {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0, samples_per_s = 0;
  double data_time_fraction = 0;        // share of the time in which the next batch was waited for
  std::optional<double> grad_norm;      // of the averaged gradients, before clipping
  std::optional<double> comm_fraction;  // of DDP's all-reduces in forward and backward, in the last step that was timed
  std::optional<double> tokens_per_s, tflops,
      mfu;               // of language models; tflops a rank, mfu their share of the device's
  bool skipped = false;  // the optimizer did nothing, for loss or gradients were not finite
  std::optional<Evaluation> evaluation;
};

// Calls `take` with each number of the record under the name that it has in metrics files: "step" and "epoch" are left
// out.
void visit_numbers(const StepRecord& record, const std::function<void(const std::string& name, double value)>& take);

// The same for an evaluation alone: "eval_loss" and so on.
void visit_numbers(const Evaluation& evaluation,
                   const std::function<void(const std::string& name, double value)>& take);

// {"step":1,"epoch":0,"loss":2.3,"lr":0.1,"samples_per_s":1000.0 ...}; numbers are written so that they read back as
// the same doubles; NaN and infinity as Python's json module writes them.
std::string to_json_line(const StepRecord& record);

// For one rank.
class MetricsFile {
 public:
  // Goes on with the run's lines up to `start.step`, and throws TrainError, as StepFile does.
  MetricsFile(const std::filesystem::path& path, const RunStart& start) : file_(path, start, "--metrics") {}
  void write(const StepRecord& record) { file_.write(to_json_line(record)); }
  // Of the last step done, where the start before was stopped before it. REQUIRES: nothing was written yet.
  void add(const Evaluation& evaluation);
  void check_complete() const { file_.check_complete(); }

 private:
  StepFile file_;
};

}  // namespace torchbridge::train
