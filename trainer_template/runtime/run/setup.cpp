#include <utility>
#include <vector>

#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/training.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/run/agreement.h"

namespace torchbridge::train {
std::unique_ptr<Task> open_task(ProcessGroup& group, const Options& options) {
  std::unique_ptr<Task> task;
  all_or_none(group, [&] {
    task = options.kind->open(options.task_settings());
    check_same_names(task->train_set(), printed_names(task->eval_set()), "the evaluation set");
  });
  for (const Dataset* dataset : {&task->train_set(), &task->eval_set()}) {
    if (const std::string note = dataset->note(); group.is_first() && !note.empty())
      print_message(note);
  }
  check_same_sizes(*task, options.data, group);
  return task;
}

std::shared_ptr<Model> make_model(ProcessGroup& group, const Task& task, const Options& options) {
  std::shared_ptr<Model> made;
  all_or_none(group, [&] {
    try {
      made = task.make_model();
      made->to(group.device());
    } catch (const c10::Error& error) {
      throw TrainError(formatted("--model {} cannot be made: {}", options.model, one_line(error)));
    }
  });
  return made;
}

std::unique_ptr<Optimizer> make_optimizer(ProcessGroup& group, const ModelTensors& model,
                                          const Options& options) {
  const OptimizerOptions values{
      .lr = options.lr, .momentum = options.momentum, .weight_decay = options.weight_decay};
  const auto make = optimizer_kind(options.optimizer).make;
  const DecayRule rule{.exclude_1d = options.no_decay_1d, .excluded = options.no_decay};
  std::vector<ParameterGroup> groups = groups_by_decay(model.parameters, values, rule);
  if (options.zero == 0) return make(std::move(groups));
  return make_zero(std::move(groups), group, make, options.gradient_average());
}

Loader make_loader(ProcessGroup& group, const Dataset& dataset, const Options& options,
                   const SamplerPosition& start) {
  return Loader(dataset, options.sampler(dataset.size(), group), options.loading(group), start);
}

GradScaler make_scaler(ProcessGroup& group, const Options& options) {
  return GradScaler(options.loss_scaling(), group.device());
}

}  // namespace torchbridge::train
