#include "trainer_template/runtime/options/option_conflicts.h"

#include <filesystem>
#include <utility>

#include <CLI/Error.hpp>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

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
  const auto needs_evaluations = [&](bool chosen, const std::string& option,
                                     const std::string& why) {
    if (chosen && options.eval_every == 0)
      throw CLI::ValidationError(option, formatted("{}: give --eval-every STEPS", why));
  };
  needs_evaluations(is_plateau(options.parsed_schedule), "--lr-schedule",
                    "plateau needs the loss of evaluations");
  needs_evaluations(options.early_stop > 0, "--early-stop", "it needs the loss of evaluations");
  if (options.stop_before_limit_s > 0 && options.checkpoints.folder.empty()) {
    throw CLI::ValidationError("--stop-before-limit",
                               "nothing would be saved: give --checkpoint-dir DIR");
  }
  if (!options.init_from.empty() && options.checkpoints.resume != "auto" &&
      options.checkpoints.resume != "none") {
    throw CLI::ValidationError("--init-from",
                               formatted("--resume {} has weights too: give one of the two",
                                         printable(options.checkpoints.resume)));
  }
  if (options.cudnn_benchmark && options.deterministic) {
    throw CLI::ValidationError(
        "--cudnn-benchmark",
        "the fastest algorithm may differ from run to run: leave out this or --deterministic");
  }
  if (options.grad_comm != Precision::kFp32 && options.zero == 1 &&
      options.zero_gradients == GradientAverage::kReduceScatter) {
    throw CLI::ValidationError(
        "--grad-comm", formatted("{} is for DDP's all-reduce, which --zero-gradients "
                                 "reduce-scatter replaces: give --zero-gradients all-reduce",
                                 options.grad_comm.name()));
  }
  for (const auto& [option, file] :
       {std::pair("--metrics", &options.metrics), std::pair("--sample-log", &options.sample_log)}) {
    if (options.profile > 0 && is_same_file(*file, options.profile_file)) {
      throw CLI::ValidationError("--profile-file", formatted("'{}' is the file of {}: give another",
                                                             options.profile_file, option));
    }
  }
  // If the checkpoint determines the task, run_inference() checks this after reading the
  // checkpoint.
  const std::string reason = options.why_unsupported(*options.kind);
  if ((options.task_given || !options.init_from.empty()) && !reason.empty())
    throw CLI::ValidationError(reason);
  if (options.is_inference() && options.init_from.empty() && options.checkpoints.folder.empty() &&
      options.checkpoints.resume == "auto") {
    throw CLI::ValidationError(
        options.generate.empty() ? "--predict" : "--generate",
        "needs weights: give --checkpoint-dir DIR, --resume PATH or --init-from FILE");
  }
}

}  // namespace torchbridge::train
