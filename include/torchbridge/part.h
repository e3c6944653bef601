// A part of a training run: it observes the steps, and may have state that checkpoints hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torchbridge::train {

class TrainingStep;  // <torchbridge/training_step.h>

struct Evaluation {
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics;  // the task's, by name
};

// Rates and fractions are over the time since the previous step, on this rank, and NaN for a step
// of an earlier start; samples and tokens are those of all ranks.
struct StepMetrics {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;  // mean over all ranks
  double learning_rate = 0, samples_per_s = 0;
  double seconds = 0;               // that time, without evaluations; not written
  double data_time_fraction = 0;    // of the time, spent waiting for the next batch
  std::optional<double> grad_norm;  // of the averaged gradients, before clipping
  // Of forward and backward, spent in DDP's all-reduces, in the last timed step.
  std::optional<double> comm_fraction;
  // For language models: tflops is per rank, mfu the fraction of the device's peak.
  std::optional<double> tokens_per_s, tflops, mfu;
  // The program's own numbers: means over all ranks.
  std::vector<std::pair<std::string, double>> logged;
  // The optimizer changed nothing, because the loss or a gradient was not finite.
  bool skipped = false;
  std::optional<Evaluation> evaluation;
};

// What ranks say of the next step, each as 1 or 0, or the sums over the ranks.
struct StopVotes {
  double stop = 0, without_data = 0;  // wants to stop; has no data for it yet
};

// The numbers of a step on the host.
struct StepNumbers {
  double loss = 0;              // mean over the ranks
  double own_loss = 0;          // of this rank
  std::int64_t bad_losses = 0;  // ranks whose loss is not finite
  bool bad_gradient = false;    // a gradient is not finite, on any rank
  std::optional<double> norm;   // of the averaged gradients, before clipping
  StopVotes votes;              // sums
};

// A step whose numbers are on the host.
struct FinishedStep {
  // Loss, grad_norm, skipped and the values of `logged` are those of the numbers.
  StepMetrics record;
  std::vector<std::vector<std::int64_t>> samples;  // of this rank, batch by batch
  StepNumbers numbers;
};

// By name. All are finite, as JSON requires.
using PartNumbers = std::map<std::string, double>;

// The state of one part as a checkpoint has it. Counts are exact up to 2^53.
class SavedNumbers {
 public:
  // Those of `all` whose name is NAME.KEY, or NAME for the key "".
  SavedNumbers(const std::string& name, const PartNumbers& all);

  bool empty() const { return numbers_.empty(); }
  std::optional<double> find(const std::string& key) const;
  // Both throw TrainError if the number is missing, or is no count.
  double at(const std::string& key) const;
  std::int64_t count_at(const std::string& key) const;

 private:
  std::string name_;
  PartNumbers numbers_;  // by key
};

// Replaces the numbers of a name in `all` by `numbers`, which are by key.
void save_numbers(const std::string& name, const PartNumbers& numbers, PartNumbers& all);

// A run calls these functions of each of its parts on all ranks, on the thread that trains: early
// stop, learning rates, loss scaling, what a program adds (Session::keep).
class Part {
 public:
  virtual ~Part() = default;

  // Of its state; empty: it has none. Two parts of a run have different names.
  virtual std::string name() const { return ""; }
  // Its state, by key: the same on all ranks.
  virtual PartNumbers numbers() const { return {}; }
  // Once, before the first step, if the checkpoint from which the run resumes has its state.
  // Throws TrainError.
  virtual void load(const SavedNumbers&) {}

  // Before the forward pass of step number `step`, from 1.
  virtual void before_step(std::int64_t) {}
  // After the optimizer's step. A GPU may still compute it: the host does not wait.
  virtual void after_step(TrainingStep&) {}
  // When the numbers of a step are on the host; on a GPU that is during the step behind it.
  virtual void read(const FinishedStep&) {}
  // After an evaluation of --eval-every.
  virtual void evaluated(std::int64_t /*step*/, double /*loss*/) {}
};

}  // namespace torchbridge::train
