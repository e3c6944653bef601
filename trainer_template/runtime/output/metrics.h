// The curve of a training run as JSON lines, one a step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchbridge/part.h>

#include "trainer_template/runtime/output/step_file.h"

namespace torchbridge::train {

// Calls `take` with each number of the record and its name in metrics files, except "step" and
// "epoch".
void visit_numbers(const StepMetrics& record,
                   const std::function<void(const std::string& name, double value)>& take);

// The same for an evaluation alone: "eval_loss" and so on.
void visit_numbers(const Evaluation& evaluation,
                   const std::function<void(const std::string& name, double value)>& take);

// Whether metrics files have a number of the trainer's of this name, in some run. Those of
// evaluations begin with eval_.
bool is_name_of_trainer(const std::string& name);

// {"step":1,"epoch":0,"loss":2.3,"lr":0.1,"samples_per_s":1000.0 ...}. Numbers read back as the
// same doubles; NaN and infinity are written as by Python's json module.
std::string to_json_line(const StepMetrics& record);

// For one rank.
class MetricsFile {
 public:
  // Keeps the run's lines up to `start.step`, and throws TrainError, as StepFile does.
  MetricsFile(const std::filesystem::path& path, const RunStart& start)
      : file_(path, start, "--metrics") {}
  void write(const StepMetrics& record) { file_.write(to_json_line(record)); }
  // Adds the evaluation of the last step done, if the file has that step's line without it.
  // REQUIRES: nothing was written yet.
  LastLine add(const Evaluation& evaluation);
  void check_complete() const { file_.check_complete(); }

 private:
  StepFile file_;
};

}  // namespace torchbridge::train
