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

std::vector<std::string> options_without_effect(
    const Options& options, const std::function<bool(const std::string&)>& is_given) {
  const bool saves = !options.checkpoints.folder.empty();
  const bool is_fp16 = options.precision == Precision::kFp16;
  const OptimizerKind& optimizer = optimizer_kind(options.optimizer);
  const bool decays = options.weight_decay.value_or(optimizer.weight_decay) > 0;
  const struct {
    bool has_effect;
    std::vector<std::string> names;
    std::string others;
  } kGroups[] = {
      {optimizer.has_momentum, {"--momentum"}, "with --optimizer " + options.optimizer},
      {!optimizer.has_momentum || !cycles_momentum(options.parsed_schedule),
       {"--momentum"},
       "with --lr-schedule one-cycle, which sets it unless cycle_momentum=false"},
      {decays, {"--no-decay", "--no-decay-1d"}, "with a weight decay of 0"},
      {is_fp16, {"--loss-scale"}, "without --precision fp16"},
      {is_fp16 || options.on_nan == OnNan::kSkip,
       {"--max-skips"},
       "without --on-nan skip or --precision fp16"},
      {options.zero == 1, {"--zero-gradients"}, "without --zero 1"},
      {saves,
       {"--checkpoint-every", "--keep", "--keep-every", "--async-save", "--save-mb-per-s"},
       "without --checkpoint-dir"},
      {saves && options.checkpoints.async, {"--on-pending-save"}, "without --async-save"},
      {options.profile > 0, {"--profile-file"}, "without --profile"},
      {false, {"--generate-length", "--temperature"}, "without --generate"},
  };
  std::vector<std::string> lines;
  for (const auto& group : kGroups) {
    for (const std::string& name : group.names) {
      if (!group.has_effect && is_given(name))
        lines.push_back(formatted("{} has no effect {}", name, group.others));
    }
  }
  return lines;
}

}  // namespace torchbridge::train
