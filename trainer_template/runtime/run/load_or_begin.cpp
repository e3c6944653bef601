#include "trainer_template/runtime/run/load_or_begin.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/number_text.h"
#include "trainer_template/runtime/base/own_name.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"
#include "trainer_template/runtime/run/agreement.h"
#include "trainer_template/runtime/training/accumulation.h"

namespace torchbridge::train {
namespace {

constexpr const char* kSamples = "samples";  // of kTrainSet

// Without a run that saved the state: no options.
using Start = ResumedRun;

std::string option_of(const Start& start, const std::string& name,
                      const std::string& default_value) {
  const auto found = start.options.find(name);
  return found == start.options.end() ? default_value : found->second;
}

std::string of_checkpoint(const TrainState& state) {
  return formatted("the checkpoint at step {} was written in an epoch ", state.step);
}

bool is_same_model(const std::string& model, const std::string& other, const Options& options) {
  if (model == other || !options.kind->identity_of_model) return model == other;
  try {
    return options.kind->identity_of_model(model) == options.kind->identity_of_model(other);
  } catch (const TrainError&) {  // of another program
    return false;
  }
}

// The shapes of the weights do not show all of it.
void check_model(const Options& options, const Start& start) {
  for (const auto& [name, option] : options.chosen) {
    if (!option.is_of_model) continue;
    const std::string now = options.shown().at(name.substr(2)),
                      then = option_of(start, name.substr(2), now);
    if (name == "--model" ? !is_same_model(now, then, options) : now != then)
      throw TrainError(formatted(
          "the checkpoint at step {} was written with {} {}, this run has {} {}: give {} {}",
          start.state.step, name, printable(then), name, printable(now), name, printable(then)));
  }
}

// A position within an epoch is valid for one order of samples only. That of a training that began
// in Python is not known.
void check_order(const Options& options, const Start& start) {
  const std::string order =
      option_of(start, "order", start.options.empty() ? options.order.name() : "shuffled");
  if (start.state.position.consumed == 0 || order == options.order.name()) return;
  throw TrainError(
      formatted("{}with --order {}, this run has --order {}; resuming would skip and repeat "
                "samples: give --order {}",
                of_checkpoint(start.state), order, options.order.name(), order));
}

// It is valid for one training set only, too.
void check_train_set(const Options& options, const Start& start, std::int64_t samples,
                     const std::string& fingerprint) {
  const TrainState& state = start.state;
  if (state.position.consumed == 0) return;
  const SavedNumbers saved(kTrainSet, state.parts);
  const std::int64_t samples_then = saved.empty() ? samples : saved.count_at(kSamples);
  if (samples_then != samples) {
    throw TrainError(
        formatted("{}of {} samples, this training set has {}; resuming would skip and repeat "
                  "samples: give the --data of the checkpoint",
                  of_checkpoint(state), samples_then, samples));
  }
  if (state.train_set.empty() || fingerprint.empty() || fingerprint == state.train_set) return;
  const std::string data = printable(options.shown().at("data")),
                    data_then = printable(option_of(start, "data", ""));
  throw TrainError(formatted(
      "{}of other training data of the same size{}; resuming would skip and repeat samples: give "
      "the data of the checkpoint",
      of_checkpoint(state),
      data_then == data ? formatted(", which --data {} contained then", data)
                        : formatted(" (--data {}), this run has --data {}", data_then, data)));
}

// A position at the end of an epoch is valid: it is the start of the next one. Python's samplers
// may have counted padding.
void check_position(const SamplerOptions& sampler, const SamplerPosition& position) {
  const std::int64_t most = std::max(sampler.size, samples_per_rank(sampler) * sampler.world_size);
  if (position.consumed <= most) return;
  throw TrainError(
      formatted("epoch_samples_consumed is {} in epoch {}, but an epoch of the training set has {} "
                "samples: was it saved with another --data?",
                position.consumed, position.epoch, sampler.size));
}

void report_batch_size(const Options& options, const SamplerOptions& sampler) {
  const std::int64_t most = samples_per_rank(sampler);
  if (options.batch_size <= most || options.drop_last || sampler.rank != 0) return;
  print_message(formatted(
      "--batch-size {} is larger than a rank's part of the data set: each step takes {} a rank, "
      "of {} for {}",
      options.batch_size, counted(most, "sample"), sampler.size,
      counted(sampler.world_size, "rank")));
}

// The samples of a step of all ranks; 0: not known.
std::int64_t global_batch_of(const Start& start) {
  const auto number = [&](const char* option, std::int64_t most) {
    return static_cast<double>(parse_integer(option_of(start, option, ""), 1, most).value_or(0));
  };
  constexpr double kMost = 1LL << 53;
  return static_cast<std::int64_t>(
      std::min(kMost, start.world_size * number("batch-size", 1'000'000'000) *
                          number("grad-accumulation", 1'000'000)));
}

void print_new_scale(std::int64_t batch, std::int64_t batch_before, const StepScale& scale) {
  char each[32];
  std::snprintf(each, sizeof each, "%.3g", scale.each);
  print_message(formatted(
      "the global batch is {} samples, and was {} up to step {}: --lr-schedule, --warmup-steps and "
      "--max-steps follow the samples (a step counts as {} steps); --lr stays as given, and "
      "--checkpoint-every and --eval-every count steps of any size",
      batch, batch_before, scale.first_step, each));
}

// A step has as many samples as in the run that saved the state, or the scale changes by what is
// left of the last epoch in steps of both sizes.
void scale_steps(Start& start, const Options& options, std::int64_t samples,
                 const ProcessGroup& group) {
  TrainState& state = start.state;
  const StepScale scale_before = step_scale_of(state);
  const std::int64_t before = std::min(samples, global_batch_of(start)),
                     batch = std::min(samples, group.world_size() * options.batch_size *
                                                   options.grad_accumulation);
  const auto left = [&](std::int64_t global_batch) {
    return static_cast<double>(
        steps_left({.size = samples}, {.batch_size = global_batch, .epochs = options.most_epochs()},
                   state.position, 1));
  };
  if (before == 0 || before == batch || left(batch) == 0 || left(before) == left(batch)) return;
  const StepScale scale{.first_step = state.step,
                        .first_count = scale_before.count(state.step),
                        .each = scale_before.each * left(before) / left(batch)};
  if (group.is_first()) print_new_scale(batch, before, scale);
  save_numbers(kStepScale,
               {{"first_step", static_cast<double>(scale.first_step)},
                {"first_count", scale.first_count},
                {"each", scale.each}},
               state.parts);
}

// The generators of a checkpoint go with its --seed-per-rank: otherwise they begin as they do with
// another number of ranks.
void begin_generators(const Options& options, const Start& start, const NamedTensors& generators,
                      const ProcessGroup& group) {
  const std::string now = options.shown().at("seed-per-rank"),
                    then = option_of(start, "seed-per-rank", now);
  if (now == then || start.world_size != group.world_size()) return;
  restore_generators(generators, group.device());
  if (group.is_first())
    print_message(
        formatted("the checkpoint at step {} was written with{} --seed-per-rank: the "
                  "random numbers of all ranks begin anew from --seed",
                  start.state.step, then == "yes" ? "" : "out"));
}

Start load(const Options& options, const ModelTensors& model, Optimizer& optimizer,
           const std::string& train_set, Checkpoints& checkpoints, ProcessGroup& group) {
  if (auto resumed = checkpoints.resume(model, optimizer, train_set)) return *std::move(resumed);
  if (!options.init_from.empty()) init_from(options.init_from, model, group);
  return {};
}

}  // namespace

TrainState load_or_begin(const Options& options, const Dataset& train_set,
                         const ModelTensors& model, Optimizer& optimizer, Checkpoints& checkpoints,
                         ProcessGroup& group) {
  if (options.seed_per_rank)
    at::manual_seed(options.seed + static_cast<std::uint64_t>(group.rank()));
  const NamedTensors generators = generator_states(group.device());
  const std::string fingerprint = fingerprint_of(train_set.contents());
  Start start = load(options, model, optimizer, fingerprint, checkpoints, group);
  TrainState& state = start.state;
  // A start from a checkpoint in another folder is a new run: the earlier run may continue in that
  // folder.
  const bool is_same_run = !checkpoints.last_saved().empty();
  constexpr std::size_t kDigits = 8;
  state.run =
      group.broadcast(is_same_run ? state.run : torchbridge::random_token().substr(0, kDigits));
  const std::string of_rank_0 = group.broadcast(fingerprint);
  all_or_none(group, [&] {
    if (fingerprint != of_rank_0)
      throw TrainError(
          formatted("--data {} contains other samples than on rank 0; all ranks need the same data",
                    printable(options.data)));
    check_model(options, start);
    check_order(options, start);
    check_train_set(options, start, train_set.size(), fingerprint);
    check_same_names(train_set, state.names, "the checkpoint");
    check_position(options.sampler(train_set.size(), group), state.position);
  });
  begin_generators(options, start, generators, group);
  report_batch_size(options, options.sampler(train_set.size(), group));
  scale_steps(start, options, train_set.size(), group);
  state.train_set = fingerprint;
  state.names = printed_names(train_set);
  save_numbers(kTrainSet, {{kSamples, static_cast<double>(train_set.size())}}, state.parts);
  return std::move(state);
}

StepScale step_scale_of(const TrainState& state) {
  const SavedNumbers saved(kStepScale, state.parts);
  if (saved.empty()) return {};
  const StepScale scale{.first_step = saved.count_at("first_step"),
                        .first_count = saved.at("first_count"),
                        .each = saved.at("each")};
  if (!(scale.each > 0))
    throw TrainError(
        formatted("the checkpoint has the state 'step_scale.each' of {}, expected a number above 0",
                  shortest(scale.each)));
  return scale;
}

std::int64_t total_steps(const Options& options, const Loader& loader, const TrainState& state) {
  const std::int64_t left = loader.steps_left(options.grad_accumulation);
  if (options.max_steps == 0) return state.step + left;
  const StepScale scale = step_scale_of(state);
  const double most =
      (static_cast<double>(options.max_steps) - scale.count(state.step)) / scale.each;
  return state.step + (most < static_cast<double>(left) ? std::max(std::llround(most), 0LL) : left);
}

}  // namespace torchbridge::train
