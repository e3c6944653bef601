// A copy of the template whose program does what the variable MISUSE names.
#include <cstdlib>
#include <string>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/training.h>

#include "trainer_template/tasks.h"

using namespace torchbridge::train;

namespace {

ExitCode train(ProcessGroup& group, const Options& options) {
  const std::string misuse = std::getenv("MISUSE");
  const auto does = [&](const char* what) { return misuse == what; };
  const auto task = open_task(group, options);
  const auto model = make_model(group, *task, options);
  ModelTensors optimized = tensors_of(*model);
  if (does("forget a parameter")) optimized.parameters.pop_back();
  const auto optimizer = make_optimizer(group, optimized, options);
  Session run(group, options, {*task, *model, *optimizer});
  if (does("step first")) run.next_step();
  if (does("end first")) return run.end();
  if (does("evaluate twice")) run.evaluate("mean", *model), run.evaluate("mean", *model);
  DistributedDataParallel ddp(tensors_of(*model), group, run.ddp_options());
  Loader loader = make_loader(group, task->train_set(), options, run.state().position);
  GradScaler scaler = make_scaler(group, options);
  run.begin(ddp, loader, scaler);
  if (does("begin twice")) run.begin(ddp, loader, scaler);
  if (does("keep late")) run.keep("late", at::ones({1}));
  if (does("evaluate late")) run.evaluate("late", *model);
  auto step = run.next_step();
  if (does("log three")) step->log("three", at::ones({3}));
  if (does("log nothing")) step->log("nothing", {});
  run.reduce(*step, at::zeros({}), at::zeros({}), {});
  if (does("log late")) step->log("late", at::ones({}));
  return ExitCode::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  return run_trainer(argc, argv, environ, registered_tasks(), train);
}
