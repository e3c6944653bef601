#include <torchbridge/train/run/command_line.h>

#include <CLI/CLI.hpp>
#include <torchbridge/core/env_map.h>
#include <torchbridge/core/nearest_name.h>
#include <torchbridge/program/program.h>
#include <torchbridge/train/errors.h>
#include <torchbridge/train/number_text.h>
#include <torchbridge/train/run/option_checks.h>
#include <torchbridge/train/run/other_names.h>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

namespace torchbridge::train {
namespace {

constexpr std::int64_t kMany = 1'000'000'000'000;

const CLI::Range kFromOne{std::int64_t{1}, kMany}, kFromZero{std::int64_t{0}, kMany};

// CLI11 takes the next word for the value of "--metrics=", which a variable that is not set leaves.
void refuse_empty_values(std::span<char*> words) {
  for (const std::string_view word : words) {
    const auto sign = word.find('=');
    if (word.starts_with("--") && sign + 1 == word.size()) throw CLI::ValidationError(std::string(word.substr(0, sign)), not_empty(""));
  }
}

// Values of options, as one rank tells them to the others.
std::string as_text(const std::string& value) { return value; }
std::string as_text(const std::filesystem::path& value) { return value.string(); }
std::string as_text(bool value) { return value ? "yes" : "no"; }
std::string as_text(double value) { return shortest(value); }
std::string as_text(std::integral auto value) { return std::to_string(value); }
std::string as_text(const std::optional<double>& value) { return value ? as_text(*value) : "not set"; }
std::string as_text(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

class CommandLine {
 public:
  explicit CommandLine(std::span<const TaskKind> kinds);
  // Throws CLI::ParseError.
  void parse(int argc, char** argv);
  const Options& options() const { return options_; }
  // What --help, with the defaults of the task that was chosen, or --version prints.
  std::optional<std::string> asked_for(const CLI::ParseError& error);
  // What the error says, with the nearest option for one that is not there.
  std::string text_of(const CLI::ParseError& error) const;

 private:
  // What is declared from now on is in this group of --help.
  void group(const std::string& name) { group_ = name; }
  template <class T>
  CLI::Option* option(OnRanks rule, const std::string& name, T& value, const std::string& help = "") {
    declared_[name] = {rule, [&value] { return as_text(value); }};
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      option = app_.add_flag(name, value, help);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      // As one word, for the last of several counts.
      option = app_.add_option_function<std::string>(name, [&value](const std::string& list) { value = CLI::detail::split(list, ','); }, help);
    } else {
      option = app_.add_option(name, value, help);
    }
    return option->group(group_);
  }
  void take_task();
  void declare_task();
  void declare_training();
  void declare_precision();
  void declare_checkpoints();
  void declare_stopping();
  void declare_output();
  void declare_inference();
  void declare_system();
  std::map<std::string, OptionOnRanks> on_ranks() const;

  std::span<const TaskKind> kinds_;
  Options options_;
  std::string busy_ = "wait";
  double save_mb_per_s_ = 0;
  CLI::App app_;
  std::string group_;
  struct Declared {
    OnRanks rule;
    std::function<std::string()> text;
  };
  std::map<std::string, Declared> declared_;  // by name: "--lr"
};

CommandLine::CommandLine(std::span<const TaskKind> kinds)
    : kinds_(kinds), app_("Trains with DistributedDataParallel, one process a rank.\n"
           "Ranks come from srun --torch-env, mpirun, torchrun or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT;\n"
           "without any of them it trains alone.", "trainer") {
  set_up(app_);
  app_.set_config("--config", "", "Read options from this TOML file; the command line wins")->check(not_empty);
  app_.allow_config_extras(CLI::config_extras_mode::error);
  declare_task();
  declare_training();
  declare_precision();
  declare_checkpoints();
  declare_stopping();
  declare_output();
  declare_inference();
  declare_system();
}

void CommandLine::parse(int argc, char** argv) {
  refuse_empty_values({argv, static_cast<std::size_t>(argc)});
  app_.parse(argc, argv);
  take_task();
  try {
    options_.kind->check_model(options_.model);
  } catch (const TrainError& error) {
    throw CLI::ValidationError("--model", error.what());
  }
  options_.checkpoints.busy = busy_ == "skip" ? CheckpointOptions::Busy::kSkip : CheckpointOptions::Busy::kWait;
  options_.checkpoints.bytes_per_s = save_mb_per_s_ * 1e6;
  options_.data_given = app_.get_option("--data")->count() > 0;
  options_.model_given = app_.get_option("--model")->count() > 0;
  options_.on_ranks = on_ranks();
}

std::map<std::string, OptionOnRanks> CommandLine::on_ranks() const {
  std::map<std::string, OptionOnRanks> all;
  for (const auto& [name, declared] : declared_) {
    std::string text = declared.text();
    if (declared.rule == OnRanks::kGiven) text = text.empty() ? "not set" : "set";
    all[name] = {declared.rule, std::move(text)};
  }
  all["--weight-decay"].value = as_text(options_.weight_decay.value_or(default_weight_decay(options_.optimizer)));
  if (auto& resume = all["--resume"].value; resume != "auto" && resume != "none") resume = "a path";
  return all;
}

// The task may stand in the TOML file: its defaults are known when all is read.
void CommandLine::take_task() {
  options_.kind = &*std::find_if(kinds_.begin(), kinds_.end(), [&](const TaskKind& kind) { return kind.name == options_.task; });
  for (const auto& [name, value] : options_.kind->defaults) {
    CLI::Option* const option = app_.get_option(name);
    option->count() == 0 ? option->default_val(value) : option->default_str(value);
  }
}

std::optional<std::string> CommandLine::asked_for(const CLI::ParseError& error) {
  take_task();
  app_.get_option("--task")->default_str(options_.task);
  app_.get_option("--model")->description(options_.kind->models);
  return torchbridge::asked_for(app_, error);
}

void CommandLine::declare_task() {
  group("Task, model and data");
  options_.task = kinds_.front().name;
  std::string summaries;
  std::vector<std::string> names;
  for (const TaskKind& each : kinds_) {
    summaries += (summaries.empty() ? "" : "; ") + each.name + ": " + each.summary;
    names.push_back(each.name);
  }
  option(OnRanks::kSame, "--task", options_.task, "What to learn; other defaults follow it. " + summaries)
      ->check([names](const std::string& name) {
        if (std::find(names.begin(), names.end(), name) != names.end()) return std::string();
        return "there is no task '" + name + "'" + did_you_mean(name, names);
      })->capture_default_str();
  option(OnRanks::kOwn, "--data", options_.data, "What to learn from")->check(not_empty)->capture_default_str();
  option(OnRanks::kSame, "--model", options_.model, "Its kind and sizes")->capture_default_str();
  option(OnRanks::kGiven, "--init-from", options_.init_from, "Start from the weights in this safetensors or torch.save file")->check(not_empty);
}

void CommandLine::declare_training() {
  group("Training");
  Options& o = options_;
  option(OnRanks::kSame, "--epochs", o.epochs, "Times that each sample is taken")->check(kFromOne)->capture_default_str();
  option(OnRanks::kSame, "--max-steps", o.max_steps, "Stop after so many steps in all; 0: no limit")->check(kFromZero)->capture_default_str();
  option(OnRanks::kSame, "--batch-size", o.batch_size, "Samples a rank and step")->check(kFromOne)->capture_default_str();
  option(OnRanks::kSame, "--optimizer", o.optimizer, "What moves the weights")->check(CLI::IsMember({"sgd", "adam", "adamw"}))->capture_default_str();
  option(OnRanks::kSame, "--lr", o.lr, "Learning rate")->check(not_negative)->capture_default_str();
  option(OnRanks::kSame, "--lr-schedule", o.lr_schedule, "KIND[:KEY=VALUE,...] (docs/optimizers.md): " + lr_schedule_kinds())
      ->check(check_lr_schedule)->capture_default_str();
  option(OnRanks::kSame, "--warmup-steps", o.warmup_steps, "Steps in which the learning rate rises")->check(kFromZero)->capture_default_str();
  option(OnRanks::kSame, "--momentum", o.momentum, "Of sgd")->check(not_negative)->capture_default_str();
  option(OnRanks::kSame, "--weight-decay", o.weight_decay, "Pull of each step towards weights of 0")->check(not_negative)->default_str("0.01 for adamw, else 0");
  option(OnRanks::kSame, "--no-decay", o.no_decay, "Parameters without weight decay: PATTERN,... such as *.bias")
      ->allow_extra_args(false);
  option(OnRanks::kSame, "--no-decay-1d", o.no_decay_1d, "Nor for parameters of at most one dimension")->check(boolean);
  option(OnRanks::kSame, "--grad-accumulation", o.grad_accumulation, "Batches a step")->check(kFromOne)->capture_default_str();
  option(OnRanks::kSame, "--clip-norm", o.clip_norm, "Largest norm of the gradients; 0: no limit")->check(not_negative)->capture_default_str();
  option(OnRanks::kSame, "--early-stop", o.early_stop, "Stop after so many evaluations (--eval-every) without a lower loss; 0: never")
      ->check(kFromZero)->capture_default_str();
  option(OnRanks::kSame, "--on-nan", o.on_nan, "A loss or gradient that is not finite, on any rank: stop, or skip the step")
      ->check(CLI::IsMember({"stop", "skip"}))->capture_default_str();
  option(OnRanks::kSame, "--seed", o.seed, "Of weights and order of samples")->check(check_seed)->capture_default_str();
  option(OnRanks::kSame, "--order", o.order, "Of the samples: shuffled as Python does, permuted (without a list of all), sequential")
      ->check(CLI::IsMember({"shuffled", "permuted", "sequential"}))->capture_default_str();
  option(OnRanks::kSame, "--deterministic", o.deterministic, "Refuse operations whose result may vary")->check(boolean);
}

void CommandLine::declare_precision() {
  group("Precision and memory");
  Options& o = options_;
  option(OnRanks::kSame, "--precision", o.precision, "Of forward and backward: fp32, bf16 or fp16 by autocast")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))->capture_default_str();
  option(OnRanks::kSame, "--loss-scale", o.loss_scale, "At the start, with fp16")->check(number_between(1e-30, 1e30))->capture_default_str();
  option(OnRanks::kSame, "--zero", o.zero, "1: the optimizer's state is spread over the ranks")->check(CLI::IsMember({0, 1}))->capture_default_str();
  option(OnRanks::kSame, "--zero-gradients", o.zero_gradients,
                       "Of --zero 1: all-reduce during backward, reduce-scatter after it, or auto: what the backend is better at")
      ->check(CLI::IsMember({"auto", "all-reduce", "reduce-scatter"}))->capture_default_str();
}

void CommandLine::declare_checkpoints() {
  group("Checkpoints");
  auto& o = options_.checkpoints;
  option(OnRanks::kGiven, "--checkpoint-dir", o.folder, "Shared by all nodes; without it nothing is saved")->check(not_empty);
  option(OnRanks::kSame, "--checkpoint-every", o.every, "Steps; 0: only at the end")->check(kFromZero)->capture_default_str();
  option(OnRanks::kRankZero, "--keep", o.keep, "Newest checkpoints to keep")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  option(OnRanks::kRankZero, "--keep-every", o.keep_every, "Steps: checkpoints at multiples of it are kept for good; 0: none")->check(kFromZero)->capture_default_str();
  option(OnRanks::kSame, "--async-save", o.async, "Go on training from a copy in memory while a checkpoint is written")->check(boolean);
  option(OnRanks::kSame, "--save-busy", busy_, "Where the save before is still being written: wait, or skip this one")
      ->check(CLI::IsMember({"wait", "skip"}))->capture_default_str();
  option(OnRanks::kOwn, "--save-mb-per-s", save_mb_per_s_, "That a rank writes at most; 0: no limit")->check(not_negative)->capture_default_str();
  option(OnRanks::kSame, "--resume", o.resume, "auto: the newest good one in --checkpoint-dir; none; or a path")->capture_default_str();
  option(OnRanks::kGiven, "--resume-from-python", options_.resume_from_python,
                       "Where there is no checkpoint: go on from a torch.save of {\"model\": state_dict, \"optimizer\": state_dict, ...}")->check(not_empty);
}

void CommandLine::declare_stopping() {
  group("Stopping: SIGTERM, SIGUSR1, SIGUSR2 and SIGINT save and end with exit code 75 (docs/preemption.md)");
  Options& o = options_;
  const CLI::Range seconds{std::int64_t{0}, std::int64_t{100'000'000}};
  option(OnRanks::kOwn, "--grace", o.grace_s, "Seconds from the signal until the process would be ended by force; 0: not known")
      ->check(seconds)->capture_default_str();
  option(OnRanks::kOwn, "--stop-before-limit", o.stop_before_limit_s, "Stop by oneself so many seconds before the job's time limit; 0: never")
      ->check(seconds)->capture_default_str();
}

void CommandLine::declare_output() {
  group("Output");
  Options& o = options_;
  option(OnRanks::kRankZero, "--metrics", o.metrics, "Write one JSON object a step to this file")->check(not_empty);
  option(OnRanks::kRankZero, "--ledger", o.ledger, "Write each step's samples, rank by rank, to this file (scripts/check_ledger)")->check(not_empty);
  option(OnRanks::kRankZero, "--tensorboard", o.tensorboard, "Write TensorBoard's event files into this folder")->check(not_empty);
  option(OnRanks::kRankZero, "--no-grad-norm", o.no_grad_norm, "Leave the gradient's norm out of them, which is a pass over all gradients")->check(boolean);
  option(OnRanks::kRankZero, "--peak-tflops", o.peak_tflops, "Of a rank's device, for the share of it that a language model uses (MFU); 0: unknown")
      ->check(not_negative)->capture_default_str();
  option(OnRanks::kSame, "--eval-every", o.eval_every, "Steps; 0: only at the end")->check(kFromZero)->capture_default_str();
  option(OnRanks::kGiven, "--compiled-eval", o.compiled_eval, "Evaluate by this package of AOTInductor (.pt2) with the weights of the model")
      ->check(CLI::ExistingFile);
  option(OnRanks::kRankZero, "--profile", o.profile, "Trace so many steps after the first ten (rank 0; Chrome's and Perfetto's format)")
      ->check(kFromZero)->capture_default_str();
  option(OnRanks::kRankZero, "--profile-file", o.profile_file, "Where --profile writes its trace")->check(not_empty)->capture_default_str();
  option(OnRanks::kRankZero, "--progress", o.progress, "bar, lines, or auto: a bar on a terminal")
      ->check(CLI::IsMember({"auto", "bar", "lines"}))->capture_default_str();
  option(OnRanks::kRankZero, "--quiet", o.quiet, "Only the last line")->check(boolean);
}

void CommandLine::declare_inference() {
  group("Instead of training, with the weights of --init-from or of the newest checkpoint");
  Options& o = options_;
  option(OnRanks::kSame, "--generate", o.generate, "Go on with this text")->check(not_empty);
  option(OnRanks::kRankZero, "--generate-length", o.generate_length, "Tokens")->check(kFromOne)->capture_default_str();
  option(OnRanks::kRankZero, "--temperature", o.temperature, "Of --generate; 0: always the likeliest token")->check(not_negative)->capture_default_str();
  option(OnRanks::kGiven, "--predict", o.predict, "Say what is in this file")->check(not_empty);
}

void CommandLine::declare_system() {
  group("System");
  Options& o = options_;
  option(OnRanks::kMeeting, "--backend", o.backend, "gloo, nccl, mpi, cpu:gloo,cuda:nccl or another one; auto: by --device")
      ->check(check_backend)->capture_default_str();
  option(OnRanks::kOwn, "--init-method", o.init_method, "env://, tcp://HOST:PORT, file:///PATH, slurm://, mpi:// or pmix://; "
                       "without it, whatever started the trainer")->check(check_init_method);
  option(OnRanks::kOwn, "--device", o.device, "cuda: the GPU of LOCAL_RANK, or the only visible one; auto: the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))->capture_default_str();
  option(OnRanks::kOwn, "--workers", o.workers, "Threads that prepare batches; 0: none")->check(CLI::Range(0, 256))->capture_default_str();
  option(OnRanks::kRankZero, "--heartbeat", o.heartbeat_s, "Seconds after which a stopped rank ends the job; 0: it is waited for")
      ->check(number_between(0, 1e6))->capture_default_str();
  option(OnRanks::kOwn, "--timeout", o.timeout_s, "Seconds to wait in a collective; to join, at most 60 of them")
      ->check(number_between(1, 1e6))->capture_default_str();
}

std::string CommandLine::text_of(const CLI::ParseError& error) const {
  std::string text = torchbridge::text_of(app_, error, kOtherNames);
  // CLI11 writes [SECTION] as SECTION.++.
  constexpr std::string_view kUnknownKey = "INI was not able to parse ", kSection = ".++";
  if (text.starts_with(kUnknownKey)) {
    const std::string key = text.substr(kUnknownKey.size());
    if (!key.ends_with(kSection)) return "--config: there is no key '" + printable(key) + "'" + did_you_mean_option(key, option_names(app_), kOtherNames, "");
    return "--config: there is no section [" + printable(key.substr(0, key.size() - kSection.size())) + "]: keys stand without one";
  }
  const bool in_file = dynamic_cast<const CLI::ConfigError*>(&error) || dynamic_cast<const CLI::FileError*>(&error);
  return in_file ? "--config: " + text : text;
}

// --generate and --predict, of tasks that have that.
void check_offers(const TaskKind& kind, bool TaskKind::* offers, const std::string& option, std::span<const TaskKind> kinds) {
  if (kind.*offers) return;
  std::string others;
  for (const TaskKind& each : kinds) {
    if (each.*offers) others += (others.empty() ? ", --task " : " or ") + each.name;
  }
  throw CLI::ValidationError(option, "task '" + kind.name + "' cannot do that" + (others.empty() ? "" : others + " can"));
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code ignored;
  const auto full = [&](const std::filesystem::path& path) { return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored); };
  return !one.empty() && full(one) == full(other);
}

void check_together(const Options& options, std::span<const TaskKind> kinds) {
  const auto needs_evaluations = [&](bool chosen, const std::string& option, const std::string& why) {
    if (chosen && options.eval_every == 0) throw CLI::ValidationError(option, why + ": give --eval-every STEPS");
  };
  needs_evaluations(is_plateau(options.schedule()), "--lr-schedule", "plateau goes by the loss of evaluations");
  needs_evaluations(options.early_stop > 0, "--early-stop", "it goes by the loss of evaluations");
  if (options.stop_before_limit_s > 0 && options.checkpoints.folder.empty()) {
    throw CLI::ValidationError("--stop-before-limit", "nothing would be saved: give --checkpoint-dir DIR");
  }
  if (!options.init_from.empty() && !options.resume_from_python.empty()) {
    throw CLI::ValidationError("--resume-from-python", "brings weights along: leave --init-from out");
  }
  for (const auto& [option, file] : {std::pair("--metrics", &options.metrics), std::pair("--ledger", &options.ledger)}) {
    if (options.profile > 0 && is_same_file(*file, options.profile_file)) {
      throw CLI::ValidationError("--profile-file", "'" + options.profile_file + "' is the file of " + option + ": give another");
    }
  }
  if (!options.generate.empty()) check_offers(*options.kind, &TaskKind::generates, "--generate", kinds);
  if (!options.predict.empty()) check_offers(*options.kind, &TaskKind::predicts, "--predict", kinds);
  if (options.is_inference() && options.init_from.empty() && options.checkpoints.folder.empty() &&
      options.checkpoints.resume == "auto") {
    throw CLI::ValidationError(options.generate.empty() ? "--predict" : "--generate",
                               "needs weights: --checkpoint-dir DIR, --resume PATH or --init-from FILE");
  }
}

}  // namespace

Options parse_command_line(int argc, char** argv, std::span<const TaskKind> kinds) {
  CommandLine line(kinds);
  try {
    line.parse(argc, argv);
    check_together(line.options(), kinds);
  } catch (const CLI::ParseError& error) {
    if (const auto text = line.asked_for(error)) throw EarlyExit(ExitCode::kDone, *text);
    throw EarlyExit(ExitCode::kBadOptions, line.text_of(error) + " (see --help)");
  }
  Options options = line.options();
  options.checkpoints.seed = options.seed;
  options.checkpoints.shown = options.shown();
  return options;
}

}  // namespace torchbridge::train
