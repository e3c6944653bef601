#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <torch/headeronly/version.h>
#include <torchbridge/errors.h>
#include <torchbridge/option_table.h>
#include <torchbridge/options.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/program/pages.h"
#include "bridge/program/program.h"
#include "trainer_template/runtime/backends/device_backends.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/formats/toml_file.h"
#include "trainer_template/runtime/options/config_file.h"
#include "trainer_template/runtime/options/declare_options.h"
#include "trainer_template/runtime/options/option_conflicts.h"
#include "trainer_template/runtime/options/option_suggestions.h"

namespace torchbridge::train {
namespace {

// An unset shell variable leaves "--metrics=", for which CLI11 would take the next argument as the
// value.
void reject_empty_values(std::span<char*> arguments) {
  for (const std::string_view argument : arguments) {
    const auto sign = argument.find('=');
    if (argument.starts_with("--") && sign + 1 == argument.size())
      throw CLI::ValidationError(std::string(argument.substr(0, sign)), not_empty(""));
  }
}

class CommandLine {
 public:
  explicit CommandLine(std::span<const TaskRegistration> kinds);
  // Throws CLI::ParseError.
  void parse(int argc, char** argv);
  const Options& options() const { return options_; }
  // The text of --help, with the defaults of the selected task, or of --version.
  std::optional<std::string> help_or_version(const CLI::ParseError& error);
  std::optional<std::string> page_asked_for(int argc, char** argv) const {
    return torchbridge::page_asked_for(app_, argc, argv);
  }
  std::optional<std::string> printed_config() {
    return prints_config_ ? std::optional(config_file(table_, app_.get_name())) : std::nullopt;
  }
  std::string text_of(const CLI::ParseError& error) const {
    return torchbridge::command_line_error(app_, error, kSuggestedOptions);
  }

 private:
  void take_arguments();
  void take_file();
  void take_task();
  void choose_device();
  std::map<std::string, ChosenOption> chosen();

  std::span<const TaskRegistration> kinds_;
  Options options_;
  OptionTable table_;
  CLI::App app_;
  std::map<std::string, std::string> arguments_;  // values on the command line, by option
  std::string file_;
  bool prints_config_ = false;
};

CommandLine::CommandLine(std::span<const TaskRegistration> kinds)
    : kinds_(kinds),
      app_(
          "Trains with DistributedDataParallel, one process a rank.\n"
          "The ranks are those of srun --torch-env, mpirun or torchrun, or of RANK, WORLD_SIZE, "
          "MASTER_ADDR\n"
          "and MASTER_PORT; without any of them there is one rank.",
          program_name()) {
  set_up(app_, "torch " TORCH_VERSION);
  app_.add_option("--config", file_,
                  "Read options from this TOML file; the command line overrides it")
      ->check(not_empty);
  app_.add_flag("--print-config", prints_config_,
                "Print all options with their values, as a file for --config");
  declare_options(table_, options_, kinds_);
  for (const DeclaredOption& each : table_.all()) {
    std::string& argument = arguments_[each.name];
    const bool is_flag = std::holds_alternative<bool*>(each.value);
    CLI::Option* const option = is_flag ? app_.add_flag(each.name, argument, each.help)
                                        : app_.add_option(each.name, argument, each.help);
    option->group(each.group);
    if (!is_flag) option->type_name(each.kind());
  }
}

void CommandLine::parse(int argc, char** argv) {
  reject_empty_values({argv, static_cast<std::size_t>(argc)});
  app_.parse(argc, argv);
  take_arguments();
  take_file();
  take_task();
  try {
    options_.kind->check_model(options_.model);
  } catch (const TrainError& error) {
    throw CLI::ValidationError("--model", error.what());
  }
  const auto schedule = parse_lr_schedule(options_.lr_schedule, options_.kind->lr_schedules);
  if (!schedule) throw CLI::ValidationError("--lr-schedule", schedule.error().message);
  options_.parsed_schedule = *schedule;
  choose_device();
  options_.checkpoints.on_pending_save = options_.on_pending_save;
  options_.checkpoints.bytes_per_s = options_.save_mb_per_s * 1e6;
  options_.checkpoints.seed = options_.seed;
  options_.task_given = table_.at("--task").is_given;
  options_.data_given = table_.at("--data").is_given;
  options_.model_given = table_.at("--model").is_given;
  options_.epochs_given = table_.at("--epochs").is_given;
  // A file of --print-config gives nearly all of them.
  options_.without_effect = options_without_effect(options_, [&](const std::string& name) {
    const DeclaredOption& option = table_.at(name);
    return option.is_given && torchbridge::train::text_of(option.value) != option.default_text;
  });
  options_.chosen = chosen();
  options_.checkpoints.shown = options_.shown();
  for (const auto& [name, option] : options_.chosen) {
    if (option.on_ranks == OnRanks::kOwn) options_.checkpoints.of_place.insert(name.substr(2));
  }
}

void CommandLine::take_arguments() {
  for (DeclaredOption& each : table_.all()) {
    if (app_.count(each.name) == 0) continue;
    each.is_given = true;
    const std::string wrong = each.assign(arguments_.at(each.name));
    if (!wrong.empty()) throw CLI::ValidationError(each.name, wrong);
  }
}

void CommandLine::take_file() {
  if (file_.empty()) return;
  const auto entries = read_toml(file_);
  if (!entries) throw CLI::ValidationError(entries.error().message);
  std::vector<std::string> keys;
  for (const DeclaredOption& each : table_.all()) keys.push_back(each.key());
  for (const TomlEntry& entry : *entries) {
    const std::string where = formatted("{}:{}: ", printable(file_), entry.line);
    DeclaredOption* const option = table_.find("--" + entry.key);
    if (!option) {
      throw CLI::ValidationError(
          formatted("{}unknown key '{}'{}", where, printable(entry.key),
                    did_you_mean_option(entry.key, keys, kSuggestedOptions, "")));
    }
    const bool wants_list = std::holds_alternative<std::vector<std::string>*>(option->value);
    if (entry.is_list && !wants_list)
      throw CLI::ValidationError(
          formatted("{}{}: expected one value, not a list", where, entry.key));
    if (std::exchange(option->is_given, true)) continue;  // the command line overrides the file
    const std::string wrong = option->assign(torchbridge::joined(entry.values, ","));
    if (!wrong.empty()) throw CLI::ValidationError(where + entry.key + ": " + wrong);
  }
}

// Called after command line and file are read, because either may contain --task.
void CommandLine::take_task() {
  options_.kinds = kinds_;
  options_.kind = &*std::ranges::find(kinds_, options_.task, &TaskRegistration::name);
  table_.at("--model").help = options_.kind->models;
  for (const auto& [name, value] : options_.kind->defaults) {
    DeclaredOption& option = table_.at(name);
    option.default_text = value;
    if (!option.is_given) option.assign(value);
  }
}

std::map<std::string, ChosenOption> CommandLine::chosen() {
  std::map<std::string, ChosenOption> all;
  for (const DeclaredOption& each : table_.all()) {
    std::string text = each.rule.text ? each.rule.text() : torchbridge::train::text_of(each.value);
    if (each.rule.on_ranks == OnRanks::kGiven) text = text.empty() ? "not set" : "set";
    all[each.name] = {each.rule.on_ranks, each.rule.is_shown, each.rule.is_of_model,
                      std::move(text)};
  }
  return all;
}

// NCCL needs GPUs: --backend nccl implies --device cuda.
void CommandLine::choose_device() {
  if (options_.backend == "auto") return;
  const std::vector<DeviceBackend> backends = *parse_backends(options_.backend, "");
  const auto is_nccl = [](const DeviceBackend& one) { return one.backend == "nccl"; };
  if (std::ranges::none_of(backends, is_nccl)) return;
  if (options_.device == DeviceChoice::kAuto) options_.device = DeviceChoice::kCuda;
  if (options_.device == DeviceChoice::kCpu && std::ranges::all_of(backends, is_nccl)) {
    throw CLI::ValidationError("--backend",
                               "nccl needs a GPU: give --device cuda, or --backend gloo or mpi");
  }
}

std::optional<std::string> CommandLine::help_or_version(const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::CallForHelp*>(&error)) {
    const auto entries = read_toml(file_);
    std::string task = arguments_.at("--task");
    for (const TomlEntry& entry : entries ? *entries : std::vector<TomlEntry>()) {
      if (entry.key == "task" && task.empty() && !entry.values.empty()) task = entry.values.front();
    }
    // An unknown task leaves the first one: help must not fail.
    (void)table_.at("--task").assign(task);
    take_task();
    table_.at("--task").default_text = options_.task;
    for (const DeclaredOption& each : table_.all()) {
      CLI::Option* const option = app_.get_option(each.name)->description(each.help);
      if (!std::holds_alternative<bool*>(each.value))
        option->default_str(each.default_text.empty() ? each.rule.if_not_set : each.default_text);
    }
  }
  return torchbridge::help_or_version(app_, error);
}

}  // namespace

Options parse_command_line(int argc, char** argv, std::span<const TaskRegistration> kinds) {
  CommandLine line(kinds);
  try {
    if (const auto page = line.page_asked_for(argc, argv)) throw EarlyExit(ExitCode::kDone, *page);
    line.parse(argc, argv);
    check_together(line.options());
  } catch (const CLI::ParseError& error) {
    if (const auto text = line.help_or_version(error)) throw EarlyExit(ExitCode::kDone, *text);
    throw EarlyExit(ExitCode::kBadOptions, formatted("{} (see --help)", line.text_of(error)));
  }
  if (const auto text = line.printed_config()) throw EarlyExit(ExitCode::kDone, *text);
  return line.options();
}

}  // namespace torchbridge::train
