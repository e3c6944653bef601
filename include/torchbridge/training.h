// Everything for a training program: process group, data, DDP, optimizers, and the session of
// training.
#pragma once

#include <unistd.h>  // environ

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchbridge/data.h>
#include <torchbridge/ddp.h>
#include <torchbridge/errors.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/part.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>
#include <torchbridge/train_state.h>
#include <torchbridge/training_step.h>

namespace torchbridge::train {

struct Options;  // <torchbridge/options.h>
struct EvaluationEnd;
struct EvaluationOptions;

// The functions below make the parts of a run from its options.

// The task of --task. Collective: throws on all ranks if one cannot read the data, or has data of
// another size than rank 0. TrainError names --data.
std::unique_ptr<Task> open_task(ProcessGroup& group, const Options& options);

// The task's model with initial weights, on the group's device. Collective: throws on all ranks if
// one has not enough memory for it. TrainError names --model.
std::shared_ptr<Model> make_model(ProcessGroup& group, const Task& task, const Options& options);

// Of these parameters. Collective with --zero. The group must outlive it.
std::unique_ptr<Optimizer> make_optimizer(ProcessGroup& group, const ModelTensors& model,
                                          const Options& options);

// Of this rank's batches, from `start` on. The data set must outlive it.
Loader make_loader(ProcessGroup& group, const Dataset& dataset, const Options& options,
                   const SamplerPosition& start);

// Of --precision fp16; without it the scaler only checks gradients.
GradScaler make_scaler(ProcessGroup& group, const Options& options);

// One optimizer, or several of different parameters.
struct Optimizers {
  Optimizers(Optimizer& one) : all{&one} {}
  Optimizers(std::initializer_list<std::reference_wrapper<Optimizer>> several) {
    for (Optimizer& each : several) all.push_back(&each);
  }
  std::vector<Optimizer*> all;
};

// What a run trains; it must outlive the session. Several models are the parts of one, each
// registered in it (tensors_of(model, "critic")). Each parameter with requires_grad is in an
// optimizer.
struct Trained {
  const Task& task;
  Model& model;
  Optimizers optimizers;
};

// A session of training: everything of a run that is not the mathematics of a step: resume,
// learning rates, evaluations, checkpoints, metrics and progress, steps that are not finite, early
// stop, profile, and the agreement of the ranks to stop. All functions but state() and clipping()
// are collectives, or may be: all ranks call them in one order. For one thread.
class Session {
 public:
  // Opens --checkpoint-dir, and loads the checkpoint from which the run resumes, or what
  // --init-from names, into model and optimizers. The random numbers of the steps are the same
  // whatever the program draws until begin(), as for the weights of another model. Throws
  // TrainError on all ranks, also for a parameter with requires_grad that no optimizer has.
  Session(ProcessGroup& group, const Options& options, const Trained& trained);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Where this start begins: for what has a position or a state of its own.
  const TrainState& state() const;
  // Of --clip-norm, for clip_grad_norm(): with several optimizers for the parameters of each alone.
  const GradientClipping& clipping() const;
  // For the DDP of the model, or of a part of it: the hook of its optimizer or of --grad-comm, and
  // the buckets of the checkpoint.
  DdpOptions ddp_options(const std::string& part = "") const;

  // Checkpoints hold these tensors of the program's own, such as an average of the weights, the
  // same on all ranks. If the run resumes they have the checkpoint's values on return; from a
  // checkpoint that lacks `name` they stay as they are, and rank 0 prints so. Change them in place
  // (lerp_(), copy_()), because an assignment makes another tensor that nobody saves, and after the
  // optimizer's step, because an asynchronous save reads them until then. `name` is of small
  // letters, digits and underscores. Call it before begin(). Throws TrainError on all ranks if a
  // tensor has another shape or type in the checkpoint, or has no name in it.
  void keep(const std::string& name, const NamedTensors& tensors);
  void keep(const std::string& name, const at::Tensor& tensor) {
    keep(name, NamedTensors{{"", tensor}});
  }

  // The run also calls this part, after its own ones, and checkpoints hold its numbers, by its
  // name(), as with keep() above. It must outlive the session. Call it before begin(). Throws
  // TrainError for a name that keep() above would not take, and in begin() for that of a part of
  // the run's own.
  void keep(Part& part);

  // Another loader than that of the steps, whose position checkpoints hold by this name, as with
  // keep(). The data set must outlive the session. Whether it has changed since the checkpoint is
  // not checked. Without options: those of the run.
  Loader& loader(const std::string& name, const Dataset& dataset);
  Loader& loader(const std::string& name, const Dataset& dataset, const SamplerOptions& sampler,
                 const LoaderOptions& options);

  // Evaluations also evaluate this model, once a name, with the task's loss and metrics:
  // eval_NAME_loss in metrics files, and so on. Schedules and early stop follow the model that is
  // trained. Its weights are the same on all ranks; all ranks get rank 0's buffers. It must outlive
  // the session. Call it before begin().
  void evaluate(const std::string& name, Model& model);

  // Once, before the first step: opens what is written, gives the parts of the run their state, and
  // prints the settings. Those given are used until end(); they may be destroyed before the
  // session. Several DDPs are of different parts of the model.
  void begin(const std::vector<std::reference_wrapper<DistributedDataParallel>>& ddps,
             Loader& loader, GradScaler& scaler);
  void begin(DistributedDataParallel& ddp, Loader& loader, GradScaler& scaler) {
    begin(std::vector{std::ref(ddp)}, loader, scaler);
  }

  // The next step, with its learning rate set and its micro-batches taken; nothing once the run is
  // complete or the ranks agree to stop.
  std::optional<TrainingStep> next_step();

  // The step of one of several optimizers before the others', as that of a GAN's critic: unscales
  // and clips the gradients that its backward passes have averaged, and updates its parameters. If
  // one is not finite it changes nothing, and neither does what follows reduce(). Call its
  // zero_grad() before its backward passes: those of other losses may have left gradients in its
  // parameters. Collective if has_own_gradients_only().
  void step_first(TrainingStep& step, Optimizer& optimizer);

  // The step's one all-reduce of numbers: the mean loss of this rank, without dimensions;
  // `found_inf` of GradScaler::unscale(); `norm` of the averaged gradients, or undefined; and what
  // the step logs. Sets step.found_inf(). The host does not wait for the device.
  void reduce(TrainingStep& step, const at::Tensor& loss, const at::Tensor& found_inf,
              const at::Tensor& norm);

  // After the optimizer's step. Writes metrics, evaluates and saves what is due. On a GPU the
  // numbers are read a step later, and so is an error of theirs thrown.
  void finish(TrainingStep& step);

  // After the last step: evaluates and saves what is left, and prints the last line. Returns the
  // exit code of the process.
  ExitCode end();

 private:
  struct Run;
  struct Observers;
  void try_evaluation();
  void evaluate_again(StepMetrics record);
  EvaluationEnd evaluate_all(const EvaluationOptions& options);
  void evaluate_now();
  void save_unevaluated();
  void save_before(const TrainingStep& step);
  void throw_on_all(const std::function<void()>& check);
  void finish_read(FinishedStep step, bool is_written);
  const TrainState& state_to_save();
  void save_last();
  ExitCode stopped();

  std::unique_ptr<Run> run_;
  std::unique_ptr<Observers> observers_;  // from begin() on; uses run_
};

// What a program does between the start and the end of its process group.
using Train = std::function<ExitCode(ProcessGroup&, const Options&)>;

// The frame of a trainer: from the command line to the exit code. Parses the command line, forms
// the process group of this launch (run_job()), checks that all ranks have the same options, and
// calls `train`, with the generators seeded and with signals recorded; --generate and --predict end
// without it. `kinds`, the program's tasks, must outlive the call; the first is the default of
// --task. `environment`: environ of the process. Returns its exit code.
int run_trainer(int argc, char** argv, char** environment, std::span<const TaskRegistration> kinds,
                const Train& train);

}  // namespace torchbridge::train
