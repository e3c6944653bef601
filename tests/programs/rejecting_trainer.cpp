// The trainer with targets beyond the classes in step 3, by REJECTS: of "all", of "rank 0", or
// "after a step of an optimizer".
#include <cstdlib>
#include <string>

#include <torchbridge/training.h>

#include "trainer_template/tasks.h"

using namespace torchbridge::train;

namespace {

ExitCode train(ProcessGroup& group, const Options& options) {
  const std::string rejects = std::getenv("REJECTS");
  const auto task = open_task(group, options);
  const auto model = make_model(group, *task, options);
  const auto optimizer = make_optimizer(group, tensors_of(*model), options);
  Session run(group, options, {*task, *model, *optimizer});
  DistributedDataParallel ddp(tensors_of(*model), group, run.ddp_options());
  Loader loader = make_loader(group, task->train_set(), options, run.state().position);
  GradScaler scaler = make_scaler(group, options);
  run.begin(ddp, loader, scaler);
  while (auto step = run.next_step()) {
    optimizer->zero_grad();
    const Batch& batch = step->batches().front();
    const bool is_rejected = step->number() == 3 && (rejects != "rank 0" || group.rank() == 0);
    const at::Tensor loss = forward_loss(ddp, *model, *task, batch, *step);
    if (is_rejected && rejects == "after a step of an optimizer") {
      scaler.scale(loss).backward();
      run.step_first(*step, *optimizer);
    }
    if (is_rejected) {
      Batch bad = batch;
      bad.targets = bad.targets + 1000;
      forward_loss(ddp, *model, *task, bad, *step);
    }
    scaler.scale(loss).backward();
    const at::Tensor found_inf = scaler.unscale(*optimizer);
    const at::Tensor norm = clip_grad_norm(group, *optimizer, run.clipping(), found_inf);
    run.reduce(*step, loss.detach(), found_inf, norm);
    optimizer->step(step->found_inf());
    scaler.update(step->found_inf());
    run.finish(*step);
  }
  return run.end();
}

}  // namespace

int main(int argc, char** argv) {
  return run_trainer(argc, argv, environ, registered_tasks(), train);
}
