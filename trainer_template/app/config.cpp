#include "config.h"

#include <CLI/CLI.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/core/init_method.h>
#include <torchbridge/train/group/backend_choice.h>
#include <torchbridge/train/errors.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

using torchbridge::train::EarlyExit;
using torchbridge::train::ExitCode;

namespace {

constexpr std::int64_t kMany = 1'000'000'000'000;

// An installed trainer finds the digits beside it, one in its build folder in the source tree.
std::string default_data() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto installed = program.parent_path().parent_path() / "share/torchbridge/digits";
  return std::filesystem::is_directory(installed, ignored) ? installed.string() : DIGITS_DIR;
}

ModelSpec parse_model(const std::string& model) {
  const std::string expected = "'" + model + "': expected mlp:WIDTH,WIDTH... or cnn:CHANNELS,CHANNELS... with numbers from 1 to 65536";
  const auto colon = model.find(':');
  ModelSpec spec{.kind = model.substr(0, colon), .widths = {}};
  if (colon == std::string::npos || (spec.kind != "mlp" && spec.kind != "cnn")) throw CLI::ValidationError("--model", expected);
  std::istringstream list(model.substr(colon + 1));
  for (std::string width; std::getline(list, width, ',');) {
    const auto number = torchbridge::parse_integer(width, 1, 65536);
    if (!number) throw CLI::ValidationError("--model", expected);
    spec.widths.push_back(*number);
  }
  constexpr std::size_t kMostStages = 16;
  if (spec.widths.empty() || model.ends_with(',') || (spec.kind == "cnn" && spec.widths.size() > kMostStages)) {
    throw CLI::ValidationError("--model", expected);
  }
  return spec;
}

std::string check_backend(const std::string& name) {
  if (name == "auto") return {};
  const auto backends = torchbridge::train::parse_backends(name, "");
  return backends ? "" : backends.error().message;
}

std::string check_init_method(const std::string& url) {
  const auto method = torchbridge::parse_init_method(url);
  return method ? "" : method.error().message;
}

std::string check_lr_schedule(const std::string& text) {
  const auto schedule = torchbridge::train::parse_lr_schedule(text);
  return schedule ? "" : schedule.error().message;
}

std::string not_negative(const std::string& text) {
  double value = -1;
  const bool number = CLI::detail::lexical_cast(text, value);
  return number && value >= 0 && value < 1e300 ? "" : "'" + text + "': expected a number from 0 on";
}

void declare_model_and_data(CLI::App& app, Config& config) {
  auto* group = app.add_option_group("Model and data");
  group->add_option("--task", config.task, "What to learn")->check(CLI::IsMember({"digits"}))->capture_default_str();
  group->add_option("--data", config.data, "Folder of MNIST's IDX files, plain or .gz")->capture_default_str();
  group->add_option("--model", config.model, "mlp:WIDTH,WIDTH...: the hidden layers, or cnn:CHANNELS,...: a convolution each")->capture_default_str();
  group->add_option("--init-from", config.init_from, "Start from the weights in this safetensors or torch.save file");
}

void declare_training(CLI::App& app, Config& config) {
  auto* group = app.add_option_group("Training");
  group->add_option("--epochs", config.epochs)->check(CLI::Range(std::int64_t{1}, kMany))->capture_default_str();
  group->add_option("--max-steps", config.max_steps, "Stop after so many steps in all; 0: no limit")
      ->check(CLI::Range(std::int64_t{0}, kMany))->capture_default_str();
  group->add_option("--batch-size", config.batch_size, "Samples a rank and step")
      ->check(CLI::Range(std::int64_t{1}, kMany))->capture_default_str();
  group->add_option("--optimizer", config.optimizer)->check(CLI::IsMember({"sgd", "adam", "adamw"}))->capture_default_str();
  group->add_option("--lr", config.lr, "Learning rate")->check(not_negative)->capture_default_str();
  group->add_option("--lr-schedule", config.lr_schedule, "KIND[:KEY=VALUE,...] (docs/optimizers.md): " +
                    torchbridge::train::lr_schedule_kinds())->check(check_lr_schedule)->capture_default_str();
  group->add_option("--warmup-steps", config.warmup_steps, "Steps in which the learning rate rises")
      ->check(CLI::Range(std::int64_t{0}, kMany))->capture_default_str();
  group->add_option("--momentum", config.momentum, "Of sgd")->check(not_negative)->capture_default_str();
  group->add_option("--weight-decay", config.weight_decay)->check(not_negative)->capture_default_str();
  group->add_option("--no-decay", config.no_decay, "Parameters without weight decay: PATTERN,... such as *.bias")
      ->delimiter(',')->allow_extra_args(false);
  group->add_flag("--no-decay-1d", config.no_decay_1d, "Nor for parameters of at most one dimension");
  group->add_option("--grad-accumulation", config.grad_accumulation, "Batches a step")->check(CLI::Range(std::int64_t{1}, kMany))
      ->capture_default_str();
  group->add_option("--clip-norm", config.clip_norm, "Largest norm of the gradients; 0: no limit")->check(not_negative)
      ->capture_default_str();
  group->add_option("--precision", config.precision, "Of forward and backward: fp32, bf16 or fp16 by autocast")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))->capture_default_str();
  group->add_option("--loss-scale", config.loss_scale, "At the start, with fp16")->check(CLI::Range(1e-30, 1e30))
      ->capture_default_str();
  group->add_option("--zero", config.zero, "1: the optimizer's state is spread over the ranks")->check(CLI::IsMember({0, 1}))
      ->capture_default_str();
  group->add_option("--zero-gradients", config.zero_gradients, "Of --zero 1: all-reduce during backward, reduce-scatter after it, "
                    "or auto: what the backend is better at")
      ->check(CLI::IsMember({"auto", "all-reduce", "reduce-scatter"}))->capture_default_str();
  group->add_option("--seed", config.seed, "Of weights and order of samples")->capture_default_str();
  group->add_option("--order", config.order, 
                    "Of the samples: shuffled as Python does, permuted (without a list of all), sequential")
      ->check(CLI::IsMember({"shuffled", "permuted", "sequential"}))->capture_default_str();
  group->add_flag("--deterministic", config.deterministic, "Refuse operations whose result may vary");
}

void declare_checkpoints(CLI::App& app, Config& config) {
  auto* group = app.add_option_group("Checkpoints");
  auto& options = config.checkpoints;
  group->add_option("--checkpoint-dir", options.folder, "Shared by all nodes; without it nothing is saved");
  group->add_option("--checkpoint-every", options.every, "Steps; 0: only at the end")
      ->check(CLI::Range(std::int64_t{0}, kMany))->capture_default_str();
  group->add_option("--keep", options.keep, "Newest checkpoints to keep")->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  group->add_option("--resume", options.resume, "auto: the newest good one in --checkpoint-dir; none; or a path")
      ->capture_default_str();
}

void declare_output(CLI::App& app, Config& config) {
  auto* group = app.add_option_group("Output");
  group->add_option("--metrics", config.metrics, "Write one JSON object a step to this file");
  group->add_option("--eval-every", config.eval_every, "Steps; 0: only at the end")
      ->check(CLI::Range(std::int64_t{0}, kMany))->capture_default_str();
  group->add_option("--progress", config.progress, "bar, lines, or auto: a bar on a terminal")
      ->check(CLI::IsMember({"auto", "bar", "lines"}))->capture_default_str();
  group->add_flag("--quiet", config.quiet, "Only the last line");
}

void declare_system(CLI::App& app, Config& config) {
  auto* group = app.add_option_group("System");
  group->add_option("--backend", config.backend, "gloo, nccl, mpi, cpu:gloo,cuda:nccl or another one; auto: by --device")->check(check_backend)->capture_default_str();
  group->add_option("--init-method", config.init_method, "env://, tcp://HOST:PORT, file:///PATH, slurm://, mpi:// or pmix://; "
                    "without it, whatever started the trainer")->check(check_init_method);
  group->add_option("--device", config.device, "cuda: the GPU of LOCAL_RANK, or the only visible one; auto: the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))->capture_default_str();
  group->add_option("--workers", config.workers, "Threads that prepare batches; 0: none")->check(CLI::Range(0, 256))
      ->capture_default_str();
  group->add_option("--heartbeat", config.heartbeat_s, "Seconds after which a stopped rank ends the job; 0: it is waited for")
      ->check(CLI::Range(0.0, 1e6))->capture_default_str();
  group->add_option("--timeout", config.timeout_s, "Seconds to wait in a collective; to join, at most 60 of them")
      ->check(CLI::Range(1.0, 1e6))->capture_default_str();
}

}  // namespace

ModelSpec Config::model_spec() const { return parse_model(model); }

torchbridge::train::Order Config::sample_order() const {
  using torchbridge::train::Order;
  if (order == "permuted") return Order::kPermuted;
  return order == "sequential" ? Order::kSequential : Order::kShuffled;
}

torchbridge::train::GradientAverage Config::gradient_average() const {
  using torchbridge::train::GradientAverage;
  if (zero_gradients == "auto") return GradientAverage::kAuto;
  return zero_gradients == "all-reduce" ? GradientAverage::kDdp : GradientAverage::kReduceScatter;
}

torchbridge::train::LrSchedule Config::schedule() const {
  torchbridge::train::LrSchedule schedule = *torchbridge::train::parse_lr_schedule(lr_schedule);
  schedule.warmup_steps = warmup_steps;
  return schedule;
}

torchbridge::train::GroupOptions Config::group() const {
  torchbridge::train::GroupOptions options;
  options.backend = backend == "auto" ? "" : backend;
  if (device == "cuda") options.device_id = c10::Device(c10::kCUDA);
  options.init_method = *torchbridge::parse_init_method(init_method);
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
  options.silence = std::chrono::milliseconds(static_cast<std::int64_t>(heartbeat_s * 1000));
  options.join_timeout = std::min(options.join_timeout, options.timeout);
  return options;
}

torchbridge::train::ProgressStyle Config::progress_style() const {
  using torchbridge::train::ProgressStyle;
  if (quiet) return ProgressStyle::kNone;
  if (progress == "bar") return ProgressStyle::kBar;
  return progress == "lines" ? ProgressStyle::kLines : ProgressStyle::kAuto;
}

std::map<std::string, std::string> Config::shown() const {
  const auto number = [](double value) {
    std::ostringstream text;
    text << value;
    return text.str();
  };
  return {
      {"task", task}, {"data", data}, {"model", model}, {"epochs", std::to_string(epochs)},
      {"max-steps", std::to_string(max_steps)}, {"batch-size", std::to_string(batch_size)},
      {"optimizer", optimizer}, {"lr", number(lr)}, {"lr-schedule", lr_schedule},
      {"warmup-steps", std::to_string(warmup_steps)}, {"momentum", number(momentum)},
      {"weight-decay", number(weight_decay)}, {"seed", std::to_string(seed)}, {"order", order},
      {"grad-accumulation", std::to_string(grad_accumulation)}, {"clip-norm", number(clip_norm)},
      {"precision", precision}, {"zero", std::to_string(zero)},
  };
}

Config parse_config(int argc, char** argv) {
  Config config;
  config.data = default_data();
  CLI::App app("Trains on labelled images with DistributedDataParallel, one process a rank.\n"
               "Ranks come from srun --torch-env, mpirun, torchrun or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT;\n"
               "without any of them it trains alone.", "trainer");
  app.set_config("--config", "", "Read options from this TOML file; the command line wins");
  app.allow_config_extras(CLI::config_extras_mode::error);
  declare_model_and_data(app, config);
  declare_training(app, config);
  declare_checkpoints(app, config);
  declare_output(app, config);
  declare_system(app, config);
  try {
    app.parse(argc, argv);
    config.model_spec();
    if (is_plateau(config.schedule()) && config.eval_every == 0) {
      throw CLI::ValidationError("--lr-schedule", "plateau goes by the loss of evaluations: give --eval-every STEPS");
    }
    config.checkpoints.seed = config.seed;
    config.checkpoints.shown = config.shown();
  } catch (const CLI::CallForHelp&) {
    throw EarlyExit(ExitCode::kDone, app.help());
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    throw EarlyExit(ExitCode::kBadOptions, text + " (see --help)");
  }
  return config;
}
