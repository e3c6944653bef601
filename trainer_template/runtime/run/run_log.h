// The output of a training run: settings, metrics, progress, and its last line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchbridge/checkpoint.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/train_state.h>

#include "trainer_template/runtime/base/background.h"
#include "trainer_template/runtime/output/event_file.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/output/progress.h"
#include "trainer_template/runtime/output/step_file.h"
#include "trainer_template/runtime/training/early_stop.h"

namespace torchbridge::train {

// What this start continues, for files that have a line a step.
RunStart run_start_of(const Checkpoints& checkpoints, const TrainState& start);

// Rank 0 prints and writes, on a background thread; on the other ranks the functions do nothing.
class RunLog {
 public:
  // Collective: throws on all ranks if a file cannot be written. Prints the settings;
  // of a run that resumes only those that are not its checkpoint's.
  RunLog(const Options& options, ProcessGroup& group, const ModelTensors& model,
         const TrainState& start, std::int64_t total_steps, const Checkpoints& checkpoints);

  // Writes the steps of --log-every and --eval-every, and the last one; ignores the others.
  void write(StepMetrics record);
  // Returns when the kernel has all that was written. Call it before a checkpoint, so that the
  // files have every step that the checkpoint has.
  void drain();

  // The step from which this start resumes, with its evaluation, which the previous start did not
  // end. Where that start has written the step, the evaluation is added to it. Call it before
  // write().
  void add(const StepMetrics& record);

  // Prints the last line of a run that is stopped. `reasons`: one a rank, some empty.
  void stop(std::int64_t step, const std::vector<std::string>& reasons,
            const Checkpoints& checkpoints);

  // Prints the last line of a complete run, with the lowest loss if --early-stop ended it.
  // `checkpoint` may be empty. Collective: throws on all ranks if output was lost.
  void finish(std::int64_t steps, const Evaluation& result, const std::string& rate,
              const std::filesystem::path& checkpoint, const EarlyStop& early_stop);

 private:
  ProcessGroup& group_;
  bool is_reporter_;
  std::int64_t total_steps_, log_every_, eval_every_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  Progress progress_;
  // Writes the files and the progress: destroyed first, because it uses them.
  std::unique_ptr<Background> writer_;
};

// Those of `now` that `then` does not have: "0 (was 100)", or the value alone where `then` lacks
// the setting.
std::map<std::string, std::string> changed_settings(const std::map<std::string, std::string>& now,
                                                    const std::map<std::string, std::string>& then);

// "  batch-size 32        epochs 10": three a line, fewer if a value is long.
std::string settings_table(const std::map<std::string, std::string>& settings);

}  // namespace torchbridge::train
