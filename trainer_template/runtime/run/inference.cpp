#include "trainer_template/runtime/run/inference.h"

#include <algorithm>
#include <iostream>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torchbridge/errors.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/task.h>
#include <torchbridge/training.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/select_checkpoint.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/run/agreement.h"

namespace torchbridge::train {
namespace {

struct InferenceWeights {
  std::filesystem::path file;
  Manifest manifest;  // without options for --init-from
};

// Collective.
InferenceWeights weights_of(const Options& options, ProcessGroup& group) {
  if (!options.init_from.empty()) return {options.init_from, {}};
  const CheckpointOptions& checkpoints = options.checkpoints;
  const auto selected = select_checkpoint(checkpoints.folder, checkpoints.resume, group);
  all_or_none(group, [&] {
    if (!selected)
      throw TrainError(formatted("'{}' contains no checkpoint", checkpoints.folder.string()));
    if (options.task_given) check_task(*selected, options.task);
  });
  return {selected->folder / kModelFile, selected->manifest};
}

// The task of the checkpoint, unless the user gave --task.
const TaskRegistration& kind_of(const Options& options, const InferenceWeights& weights) {
  const auto task = weights.manifest.options.find("task");
  if (options.task_given || task == weights.manifest.options.end()) return *options.kind;
  const auto kind = std::ranges::find(options.kinds, task->second, &TaskRegistration::name);
  if (kind == options.kinds.end())
    throw TrainError(formatted("the checkpoint is of task '{}', which this program does not have",
                               printable(task->second)));
  if (const std::string reason = options.why_unsupported(*kind); !reason.empty())
    throw TrainError(reason);
  return *kind;
}

// With task, model and data of the checkpoint, unless the user gave them.
Options chosen_of(const Options& options, const TaskRegistration& kind,
                  const InferenceWeights& weights, bool is_first) {
  Options chosen = options;
  chosen.kind = &kind;
  for (const auto& [name, value] : kind.defaults) {
    if (name == "--data" && !options.data_given) chosen.data = value;
    if (name == "--model" && !options.model_given) chosen.model = value;
  }
  const auto& before = weights.manifest.options;
  if (const auto model = before.find("model"); model != before.end() && !options.model_given)
    chosen.model = model->second;
  std::error_code ignored;
  const auto data = before.find("data");
  if (data == before.end() || options.data_given) return chosen;
  if (std::filesystem::exists(data->second, ignored))
    chosen.data = data->second;
  else if (is_first)
    print_message(formatted("the checkpoint's --data {} does not exist: --data {} is used instead",
                            printable(data->second), printable(chosen.data)));
  return chosen;
}

}  // namespace

void run_inference(const Options& options, ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const CheckpointOptions& checkpoints = options.checkpoints;
  Options chosen;
  std::unique_ptr<Task> task;
  std::shared_ptr<Model> model;
  again_while_others_save(checkpoints.folder, checkpoints.resume, group, [&] {
    at::manual_seed(options.seed);
    const InferenceWeights weights = weights_of(options, group);
    const TaskRegistration* kind = nullptr;
    all_or_none(group, [&] { kind = &kind_of(options, weights); });
    chosen = chosen_of(options, *kind, weights, group.is_first());
    task = open_task(group, chosen);
    all_or_none(group, [&] {
      check_same_names(task->train_set(), weights.manifest.state.names, "the checkpoint");
    });
    model = make_model(group, *task, chosen);
    init_from(weights.file, tensors_of(*model), group);
  });
  model->eval();
  all_or_none(group, [&] {
    if (!group.is_first()) return;
    if (!options.generate.empty()) {
      task->generate(*model,
                     {.prompt = options.generate,
                      .length = options.generate_length,
                      .temperature = options.temperature},
                     std::cout);
    }
    if (!options.predict.empty()) task->predict(*model, options.predict, std::cout);
    flush_stdout();
  });
}

}  // namespace torchbridge::train
