// The trainer's options.
#pragma once

#include <torchbridge/train/checkpoint.h>
#include <torchbridge/train/process_group.h>
#include <torchbridge/train/progress.h>

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
  std::uint64_t seed = 0;
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
  torchbridge::train::GroupOptions group() const;
  torchbridge::train::ProgressStyle progress_style() const;
  // What was chosen, as it is shown at the start and kept in checkpoints.
  std::map<std::string, std::string> shown() const;
};

// Throws EarlyExit for --help and for anything that is not an option or not a value of it.
Config parse_config(int argc, char** argv);
