#include "trainer_template/runtime/options/option_conflicts.h"

#include <filesystem>
#include <utility>

#include <CLI/Error.hpp>

namespace torchbridge::train {
namespace {

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code ignored;
  const auto full = [&](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  };
  return !one.empty() && full(one) == full(other);
}

}  // namespace

void check_together(const Options& options) {
  const auto needs_evaluations = [&](bool chosen, const std::string& option, const std::string& why) {
    if (chosen && options.eval_every == 0) throw CLI::ValidationError(option, why + ": give --eval-every STEPS");
  };
  needs_evaluations(is_plateau(*parse_lr_schedule(options.lr_schedule, options.kind->lr_schedules)), "--lr-schedule",
                    "plateau needs the loss of evaluations");
  needs_evaluations(options.early_stop > 0, "--early-stop", "it needs the loss of evaluations");
  if (options.stop_before_limit_s > 0 && options.checkpoints.folder.empty()) {
    throw CLI::ValidationError("--stop-before-limit", "nothing would be saved: give --checkpoint-dir DIR");
  }
  if (options.cudnn_benchmark && options.deterministic) {
    throw CLI::ValidationError("--cudnn-benchmark",
                               "the fastest algorithm may differ from run to run: leave out this or --deterministic");
  }
  if (options.grad_comm != "fp32" && options.zero == 1 && options.zero_gradients == "reduce-scatter") {
    throw CLI::ValidationError("--grad-comm", options.grad_comm +
                                                  " is for DDP's all-reduce, which --zero-gradients reduce-scatter "
                                                  "replaces: give --zero-gradients all-reduce");
  }
  if (!options.init_from.empty() && !options.resume_from_python.empty()) {
    throw CLI::ValidationError("--resume-from-python", "its file contains weights: leave out --init-from");
  }
  for (const auto& [option, file] :
       {std::pair("--metrics", &options.metrics), std::pair("--sample-log", &options.sample_log)}) {
    if (options.profile > 0 && is_same_file(*file, options.profile_file)) {
      throw CLI::ValidationError("--profile-file",
                                 "'" + options.profile_file + "' is the file of " + option + ": give another");
    }
  }
  // If the checkpoint determines the task, run_inference() checks this after reading the checkpoint.
  const std::string reason = options.why_unsupported(*options.kind);
  if ((options.task_given || !options.init_from.empty()) && !reason.empty()) throw CLI::ValidationError(reason);
  if (options.is_inference() && options.init_from.empty() && options.checkpoints.folder.empty() &&
      options.checkpoints.resume == "auto") {
    throw CLI::ValidationError(options.generate.empty() ? "--predict" : "--generate",
                               "needs weights: give --checkpoint-dir DIR, --resume PATH or --init-from FILE");
  }
}

}  // namespace torchbridge::train
