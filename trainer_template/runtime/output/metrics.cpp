#include "trainer_template/runtime/output/metrics.h"

#include <cmath>

#include "trainer_template/runtime/base/number_text.h"

namespace torchbridge::train {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return shortest(value);
}

std::string member(const std::string& name, double value) {
  return ",\"" + name + "\":" + number(value);
}

}  // namespace

void visit_numbers(const StepMetrics& record,
                   const std::function<void(const std::string&, double)>& take) {
  const auto take_known = [&](const char* name, const std::optional<double>& value) {
    if (value) take(name, *value);
  };
  take("loss", record.loss);
  take("lr", record.learning_rate);
  const auto take_measured = [&](const char* name, double value) {
    if (!std::isnan(value)) take(name, value);
  };
  take_measured("samples_per_s", record.samples_per_s);
  take_known("tokens_per_s", record.tokens_per_s);
  take_known("tflops", record.tflops);
  take_known("mfu", record.mfu);
  take_known("grad_norm", record.grad_norm);
  take_measured("data_time_fraction", record.data_time_fraction);
  take_known("comm_fraction", record.comm_fraction);
  for (const auto& [name, value] : record.logged) take(name, value);
  if (record.evaluation) visit_numbers(*record.evaluation, take);
}

void visit_numbers(const Evaluation& evaluation,
                   const std::function<void(const std::string&, double)>& take) {
  take("eval_loss", evaluation.loss);
  for (const auto& [name, value] : evaluation.metrics) take("eval_" + name, value);
}

bool is_name_of_trainer(const std::string& name) {
  bool is_taken =
      name == "step" || name == "epoch" || name == "skipped" || name.starts_with("eval_");
  const StepMetrics all{
      .grad_norm = 0, .comm_fraction = 0, .tokens_per_s = 0, .tflops = 0, .mfu = 0};
  visit_numbers(all,
                [&](const std::string& known, double) { is_taken = is_taken || known == name; });
  return is_taken;
}

std::string to_json_line(const StepMetrics& record) {
  std::string line =
      "{\"step\":" + std::to_string(record.step) + ",\"epoch\":" + std::to_string(record.epoch);
  visit_numbers(record,
                [&](const std::string& name, double value) { line += member(name, value); });
  if (record.skipped) line += ",\"skipped\":true";
  return line + "}";
}

LastLine MetricsFile::add(const Evaluation& evaluation) {
  std::string members;
  visit_numbers(evaluation,
                [&](const std::string& name, double value) { members += member(name, value); });
  return file_.add_to_last(members);
}

}  // namespace torchbridge::train
