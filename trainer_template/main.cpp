// Trains on all ranks of a job: the whole run, from options to the last line. This file is meant to
// be copied and changed.
#include <torchbridge/training.h>

#include "tasks.h"

using namespace torchbridge::train;

namespace {

ExitCode train(ProcessGroup& group, const Options& options) {
  // All ranks must execute these lines in one order: those with `group`, those of `run`,
  // backward(), and with --zero optimizer->step(), are collectives.
  const auto task = open_task(group, options);
  const auto model = make_model(group, *task, options);
  const auto optimizer = make_optimizer(group, tensors_of(*model), options);
  Session run(group, options, {*task, *model, *optimizer});  // begins, or resumes
  DistributedDataParallel ddp(tensors_of(*model), group, run.ddp_options());
  Loader loader = make_loader(group, task->train_set(), options, run.state().position);
  GradScaler scaler = make_scaler(group, options);
  run.begin(ddp, loader, scaler);

  while (auto step = run.next_step()) {  // with its learning rate and its micro-batches
    optimizer->zero_grad();
    at::Tensor loss;
    for (const Batch& batch : step->batches()) {
      const auto no_sync = ddp.no_sync_unless(step->is_last(batch));  // the last one averages
      const at::Tensor part = step->share_of(batch, forward_loss(ddp, *model, *task, batch, *step));
      scaler.scale(part).backward();
      loss = loss.defined() ? loss + part.detach() : part.detach();
    }
    const at::Tensor found_inf = scaler.unscale(*optimizer);
    const at::Tensor norm = clip_grad_norm(group, *optimizer, run.clipping(), found_inf);
    run.reduce(*step, loss, found_inf, norm);
    optimizer->step(step->found_inf());  // changes nothing if the loss or a gradient is not finite
    scaler.update(step->found_inf());
    run.finish(*step);  // evaluates, saves and logs what is due
  }
  return run.end();
}

}  // namespace

int main(int argc, char** argv) {
  return run_trainer(argc, argv, environ, registered_tasks(), train);
}
