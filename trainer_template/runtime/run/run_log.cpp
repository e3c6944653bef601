#include "trainer_template/runtime/run/run_log.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/run/load_or_begin.h"

namespace torchbridge::train {
namespace {

std::string early_end(const EarlyStop& early_stop) {
  if (!early_stop.best_loss()) return " (stopped early: no evaluation loss was finite)";
  char text[96];
  std::snprintf(text, sizeof text, " (stopped early: the lowest loss was %.4f, after step %lld)",
                *early_stop.best_loss(), static_cast<long long>(early_stop.best_step()));
  return text;
}

std::string trimmed(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

// "1,234,567".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t from_end = 3; from_end < digits.size(); from_end += 4)
    digits.insert(digits.size() - from_end, ",");
  return digits;
}

// Of a run with both --epochs and --max-steps.
std::string end_of(const Options& options, const TrainState& start, std::int64_t total_steps) {
  const double most = static_cast<double>(options.max_steps);
  const bool by_epochs = step_scale_of(start).count(total_steps) + 1 <= most;
  return formatted("--{} ends it after step {}", by_epochs ? "epochs" : "max-steps", total_steps);
}

void print_settings(const Options& options, const ProcessGroup& group, const ModelTensors& model,
                    const TrainState& start, std::int64_t total_steps,
                    const Checkpoints& checkpoints) {
  std::int64_t parameters = 0;
  for (const auto& [name, parameter] : model.parameters) parameters += parameter.numel();
  const std::string nodes =
      group.are_nodes_known() ? " on " + counted(group.layout().node_count, "node") : "";
  std::string text = formatted("{}: {}{}, {}, backend {}, {} parameters", program_name(),
                               counted(group.world_size(), "rank"), nodes, group.started(),
                               group.backend(), grouped(parameters));
  if (start.step > 0) text += formatted("; resumes from step {} of {}", start.step, total_steps);
  if (const double seconds = SavedNumbers("run", start.parts).find("seconds").value_or(0);
      seconds > 0)
    text += formatted(", after {} s of training", std::llround(seconds));
  if (start.step == total_steps) text += ": the run is complete";
  if (options.epochs_given && options.max_steps > 0)
    text += "; " + end_of(options, start, total_steps);
  const auto settings = changed_settings(options.shown(), checkpoints.resumed_options());
  std::printf("%s\n%s", text.c_str(), settings_table(settings).c_str());
  std::fflush(stdout);
}

}  // namespace

std::map<std::string, std::string> changed_settings(
    const std::map<std::string, std::string>& now, const std::map<std::string, std::string>& then) {
  std::map<std::string, std::string> changed;
  for (const auto& [name, value] : now) {
    const auto before = then.find(name);
    if (before == then.end())
      changed[name] = value;
    else if (before->second != value)
      changed[name] = formatted("{} (was {})", value, printable(before->second));
  }
  return changed;
}

std::string settings_table(const std::map<std::string, std::string>& settings) {
  constexpr std::size_t kColumn = 34, kColumns = 3, kGap = 2;
  std::size_t longest = 0;
  for (const auto& [name, value] : settings) longest = std::max(longest, name.size());
  std::string text, line;
  for (const auto& [name, value] : settings) {
    std::string entry =
        std::string(kGap, ' ') + name + std::string(longest - name.size() + 1, ' ') + value;
    entry.resize((entry.size() / kColumn + 1) * kColumn, ' ');
    if (!line.empty() && line.size() + entry.size() > kColumn * kColumns) {
      text += trimmed(line) + "\n";
      line.clear();
    }
    line += entry;
  }
  return line.empty() ? text : text + trimmed(line) + "\n";
}

RunStart run_start_of(const Checkpoints& checkpoints, const TrainState& start) {
  return {.run = start.run, .step = start.step, .goes_back = checkpoints.goes_back()};
}

RunLog::RunLog(const Options& options, ProcessGroup& group, const ModelTensors& model,
               const TrainState& start, std::int64_t total_steps, const Checkpoints& checkpoints)
    : group_(group),
      is_reporter_(group.is_first()),
      total_steps_(total_steps),
      log_every_(options.log_every),
      eval_every_(options.eval_every),
      progress_(is_reporter_ ? options.progress_style() : ProgressStyle::kNone, total_steps,
                start.step) {
  all_or_none(group, [&] {
    metrics_ = std::make_unique<MetricsFile>(is_reporter_ ? options.metrics : "",
                                             run_start_of(checkpoints, start));
    events_ = std::make_unique<EventFile>(is_reporter_ ? options.tensorboard : "", start.step);
    if (is_reporter_) writer_ = std::make_unique<Background>("writes metrics");
  });
  if (!is_reporter_) return;
  for (const std::string& line : options.without_effect) print_message(line);
  if (!options.quiet) print_settings(options, group, model, start, total_steps, checkpoints);
}

void RunLog::write(StepMetrics record) {
  const auto is_due = [&](std::int64_t every) { return every > 0 && record.step % every == 0; };
  if (!is_reporter_ || !(is_due(log_every_) || is_due(eval_every_) || record.step == total_steps_))
    return;
  writer_->post([this, record = std::move(record)] {
    metrics_->write(record);
    visit_numbers(record, [&](const std::string& name, double value) {
      events_->write(record.step, name, value);
    });
    events_->flush();
    progress_.show(record);
  });
}

void RunLog::drain() {
  if (writer_) writer_->drain();
}

void RunLog::add(const StepMetrics& record) {
  if (!is_reporter_) return;
  const LastLine line = metrics_->add(*record.evaluation);
  if (line == LastLine::kHadThem) return;
  const auto write = [&](const std::string& name, double value) {
    events_->write(record.step, name, value);
  };
  if (line == LastLine::kExtended) {
    visit_numbers(*record.evaluation, write);
  } else {
    metrics_->write(record);
    visit_numbers(record, write);
  }
  events_->flush();
}

void RunLog::stop(std::int64_t step, const std::vector<std::string>& reasons,
                  const Checkpoints& checkpoints) {
  if (!is_reporter_) return;
  drain();
  const auto reason = std::find_if(reasons.begin(), reasons.end(),
                                   [](const std::string& text) { return !text.empty(); });
  std::string saved = "nothing is saved without --checkpoint-dir";
  if (checkpoints.enabled())
    saved = step == 0 ? "the same command starts again at step 0"
                      : "the same command resumes from " + checkpoints.last_saved().string();
  print_message(formatted("{}stopped after step {} of {}; {}",
                          reason == reasons.end() ? "" : *reason + ": ", step, total_steps_,
                          saved));
}

void RunLog::finish(std::int64_t steps, const Evaluation& result, const std::string& rate,
                    const std::filesystem::path& checkpoint, const EarlyStop& early_stop) {
  all_or_none(group_, [&] {
    if (!is_reporter_) return;
    drain();
    end_drawn_line();
    std::printf("%s: %s%s", program_name().c_str(), counted(steps, "step").c_str(),
                early_stop.is_due() ? early_end(early_stop).c_str() : "");
    for (const auto& [name, value] : result.metrics) std::printf(", %s %.4f", name.c_str(), value);
    std::printf(", loss %.4f, %s%s%s\n", result.loss, rate.c_str(),
                checkpoint.empty() ? "" : ", checkpoint ", checkpoint.c_str());
    flush_stdout();
    metrics_->check_complete();
    events_->check_complete();
  });
}

}  // namespace torchbridge::train
