#include "trainer_template/runtime/run/load_or_begin.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <ATen/Context.h>

#include "bridge/base/env_map.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/checkpoint/load.h"
#include "trainer_template/runtime/checkpoint/resume_from_python.h"
#include "trainer_template/runtime/checkpoint_format/fingerprint.h"
#include "trainer_template/runtime/training/accumulation.h"

namespace torchbridge::train {
namespace {

// The state to start from, and the options of the run that saved it.
struct Start {
  TrainState state;
  std::map<std::string, std::string> options;
};

std::string option_of(const Start& start, const std::string& name, const std::string& default_value) {
  const auto found = start.options.find(name);
  return found == start.options.end() ? default_value : found->second;
}

std::string of_checkpoint(const TrainState& state) {
  return "the checkpoint at step " + std::to_string(state.step) + " was written in an epoch ";
}

// A position within an epoch is valid for one order of samples only.
void check_order(const Options& options, const Start& start) {
  const std::string order = option_of(start, "order", "shuffled");
  if (start.state.position.consumed == 0 || order == options.order) return;
  throw TrainError(of_checkpoint(start.state) + "with --order " + order + ", this run has --order " + options.order +
                   "; resuming would skip and repeat samples: give --order " + order);
}

// It is valid for one training set only, too.
void check_train_set(const Options& options, const Start& start, std::int64_t samples, const std::string& fingerprint) {
  const TrainState& state = start.state;
  if (state.position.consumed == 0) return;
  if (state.train_samples > 0 && state.train_samples != samples) {
    throw TrainError(of_checkpoint(state) + "of " + std::to_string(state.train_samples) +
                     " samples, this training set has " + std::to_string(samples) +
                     "; resuming would skip and repeat samples: give the --data of the checkpoint");
  }
  if (state.train_set.empty() || fingerprint.empty() || fingerprint == state.train_set) return;
  const std::string data = printable(options.shown().at("data")), data_then = printable(option_of(start, "data", ""));
  throw TrainError(of_checkpoint(state) + "of other training data of the same size" +
                   (data_then == data ? ", which --data " + data + " contained then"
                                      : " (--data " + data_then + "), this run has --data " + data) +
                   "; resuming would skip and repeat samples: give the data of the checkpoint");
}

// A position at the end of an epoch is valid: it is the start of the next one. Python's samplers may have counted
// padding.
void check_position(const SamplerOptions& sampler, const SamplerPosition& position) {
  const std::int64_t most = std::max(sampler.size, samples_per_rank(sampler) * sampler.world_size);
  if (position.consumed <= most) return;
  throw TrainError("epoch_samples_consumed is " + std::to_string(position.consumed) + " in epoch " +
                   std::to_string(position.epoch) + ", but an epoch of the training set has " +
                   std::to_string(sampler.size) + " samples: was it saved with another --data?");
}

void check_batch_size(const Options& options, std::int64_t samples, const ProcessGroup& group) {
  const std::int64_t most = (samples + group.world_size() - 1) / group.world_size();
  if (options.batch_size <= most) return;
  throw TrainError("--batch-size " + std::to_string(options.batch_size) +
                   " is larger than the data set: " + std::to_string(samples) + " samples, " + std::to_string(most) +
                   " a rank; give " + std::to_string(most) + " at most");
}

Start load(const Options& options, const ModelTensors& model, Optimizer& optimizer, Checkpoints& checkpoints,
           ProcessGroup& group) {
  if (!options.init_from.empty()) init_from(options.init_from, model, group);
  if (auto resumed = checkpoints.resume(model, optimizer))
    return {std::move(resumed->state), std::move(resumed->options)};
  if (!options.resume_from_python.empty())
    return {resume_from_python(options.resume_from_python, model, optimizer, group), {}};
  return {};
}

}  // namespace

TrainState load_or_begin(const Options& options, const Dataset& train_set, const ModelTensors& model,
                         Optimizer& optimizer, Checkpoints& checkpoints, ProcessGroup& group) {
  if (options.seed_per_rank) at::manual_seed(options.seed + static_cast<std::uint64_t>(group.rank()));
  Start start = load(options, model, optimizer, checkpoints, group);
  TrainState& state = start.state;
  // A start from a checkpoint in another folder is a new run: the earlier run may continue in that folder.
  const bool is_same_run = !checkpoints.last_saved().empty();
  constexpr std::size_t kDigits = 8;
  state.run = group.broadcast(is_same_run ? state.run : torchbridge::random_token().substr(0, kDigits));
  const std::string fingerprint = fingerprint_of(train_set.contents());
  const std::string of_rank_0 = group.broadcast(fingerprint);
  all_or_none(group, [&] {
    if (fingerprint != of_rank_0)
      throw TrainError("--data " + printable(options.data) +
                       " contains other samples than on rank 0; all ranks need the same data");
    check_order(options, start);
    check_train_set(options, start, train_set.size(), fingerprint);
    check_position(options.sampler(train_set.size(), group), state.position);
    check_batch_size(options, train_set.size(), group);
  });
  state.train_set = fingerprint;
  state.train_samples = train_set.size();
  return std::move(state);
}

std::int64_t total_steps(const Options& options, const Dataset& train_set, const TrainState& state,
                         const ProcessGroup& group) {
  const std::int64_t all = state.step + steps_left(options.sampler(train_set.size(), group), options.loading(group),
                                                   state.position, options.grad_accumulation);
  return options.max_steps > 0 ? std::max(state.step, std::min(all, options.max_steps)) : all;
}

}  // namespace torchbridge::train
