// The trainer's options.
#pragma once

#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/optim/lr_schedule.h>
#include <torchbridge/train/group/process_group.h>
#include <torchbridge/train/progress.h>
#include <torchbridge/train/data/sampler.h>
#include <torchbridge/train/optim/zero.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// mlp:128,64 - linear layers of these widths, or cnn:16,32 - stages of so many channels.
struct ModelSpec {
  std::string kind;
  std::vector<std::int64_t> widths;
};

struct Config {
  std::string task = "digits", data, model = "mlp:128,64";

  std::int64_t epochs = 10, max_steps = 0, batch_size = 32;
  std::string optimizer = "sgd";
  double lr = 0.1, momentum = 0.9, weight_decay = 0;
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;
  std::vector<std::string> no_decay;
  bool no_decay_1d = false;
  std::int64_t grad_accumulation = 1;
  double clip_norm = 0, loss_scale = 65536;
  std::string precision = "fp32";
  int zero = 0;
  std::string zero_gradients = "auto";
  std::uint64_t seed = 0;
  std::string order = "shuffled";
  std::string init_from;
  bool deterministic = false;

  torchbridge::train::CheckpointOptions checkpoints;
  std::string metrics;
  std::int64_t eval_every = 0;
  std::string progress = "auto";
  bool quiet = false;

  std::string backend = "auto", device = "auto", init_method;
  int workers = 1;
  double heartbeat_s = 4;
  double timeout_s = 600;

  ModelSpec model_spec() const;  // of `model`
  torchbridge::train::Order sample_order() const;  // of `order`
  torchbridge::train::GradientAverage gradient_average() const;
  torchbridge::train::LrSchedule schedule() const;  // without its number of steps
  torchbridge::train::GroupOptions group() const;
  torchbridge::train::ProgressStyle progress_style() const;
  // What was chosen, as it is shown at the start and kept in checkpoints.
  std::map<std::string, std::string> shown() const;
};

// Throws EarlyExit for --help and for anything that is not an option or not a value of it.
Config parse_config(int argc, char** argv);
