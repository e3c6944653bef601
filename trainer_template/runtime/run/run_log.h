// What a training run tells: settings, the curve, progress, and its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/named_tensors.h"
#include "trainer_template/runtime/base/background.h"
#include "trainer_template/runtime/training/early_stop.h"
#include "trainer_template/runtime/output/event_file.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/output/progress.h"
#include "trainer_template/runtime/base/train_state.h"

namespace torchbridge::train {

// Rank 0 speaks and writes, on a thread of its own; on the others nothing happens.
class RunLog {
 public:
  // Collective: throws on all ranks where a file cannot be written. Prints what was chosen.
  RunLog(const Options& options, ProcessGroup& group, const ModelTensors& model, const TrainState& start,
         std::int64_t total_steps);

  // Nothing but in the steps of --log-every and --eval-every, and the last one.
  void write(StepRecord record);
  // Returns when all that was written is with the kernel: before a checkpoint, so that no file lacks a step that it
  // holds.
  void drain();

  // Of the step that this run goes on from, where the run before was stopped before it.
  void add(std::int64_t step, const Evaluation& evaluation);

  // The last line of a run that is stopped. `reasons`: one a rank, some empty.
  void stop(std::int64_t step, const std::vector<std::string>& reasons, const Checkpoints& checkpoints);

  // The last line. `checkpoint` may be empty. Where training was stopped early it says so, and what was best.
  // Collective: throws where the output was lost.
  void finish(std::int64_t steps, const Evaluation& result, const std::string& rate,
              const std::filesystem::path& checkpoint, const EarlyStop& early_stop);

 private:
  ProcessGroup& group_;
  bool speaks_;
  std::int64_t total_steps_, log_every_, eval_every_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  Progress progress_;
  std::unique_ptr<Background> writer_;  // of the files and the progress; the last member, for it uses them
};

// "  batch-size 32        epochs 10": three a line, fewer where a value is long.
std::string settings_table(const std::map<std::string, std::string>& settings);

}  // namespace torchbridge::train
