#include <torchbridge/train/run/inference.h>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/run/task.h>

#include <iostream>

namespace torchbridge::train {
namespace {

struct Weights {
  std::filesystem::path file;
  Manifest manifest;  // without options for --init-from
};

Weights newest_weights(const std::filesystem::path& folder) {
  std::string last;
  for (const std::int64_t step : complete_steps(folder)) {
    const auto manifest = verified_manifest(folder / step_folder(step));
    if (manifest) return {folder / step_folder(step) / kModelFile, *manifest};
    last = "; " + manifest.error().message;
  }
  throw TrainError("'" + folder.string() + "' holds no good checkpoint" + last);
}

Weights weights_of(const Options& options) {
  if (!options.init_from.empty()) return {options.init_from, {}};
  const CheckpointOptions& checkpoints = options.checkpoints;
  if (checkpoints.resume == "auto" || checkpoints.resume == "none") return newest_weights(checkpoints.folder);
  const std::filesystem::path path = checkpoints.resume;
  if (!std::filesystem::exists(path / kDoneFile)) return newest_weights(path);
  return {path / kModelFile, value_or_throw(verified_manifest(path))};
}

// The task as the checkpoint was trained.
TaskSettings settings_of(const Options& options, const Weights& weights) {
  TaskSettings settings = options.task_settings();
  const auto& before = weights.manifest.options;
  if (const auto task = before.find("task"); task != before.end() && task->second != options.task) {
    throw TrainError("'" + weights.file.parent_path().string() + "' was trained with --task " + task->second + ", this is --task " + options.task);
  }
  if (const auto model = before.find("model"); model != before.end() && !options.model_given) settings.model = model->second;
  if (const auto data = before.find("data"); data != before.end() && !options.data_given && std::filesystem::exists(data->second)) settings.data = data->second;
  return settings;
}

}  // namespace

void run_inference(const Options& options, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  at::manual_seed(options.seed);
  Weights weights;
  std::unique_ptr<Task> task;
  all_or_none(group, [&] {
    weights = weights_of(options);
    task = options.kind->open(settings_of(options, weights));
  });
  const auto model = task->make_model();
  model->to(group.device());
  init_from(weights.file, tensors_of(*model), group);
  model->eval();
  all_or_none(group, [&] {
    if (!group.is_first()) return;
    if (!options.generate.empty()) {
      task->generate(*model, {.prompt = options.generate, .length = options.generate_length, .temperature = options.temperature}, std::cout);
    }
    if (!options.predict.empty()) task->predict(*model, options.predict, std::cout);
    if (!(std::cout << std::flush)) throw TrainError("cannot write to stdout: is the disk full?");
  });
}

}  // namespace torchbridge::train
