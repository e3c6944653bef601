#include "trainer_template/runtime/checkpoint_format/state_entries.h"

#include <cmath>
#include <optional>
#include <stdexcept>

#include "trainer_template/runtime/base/number_text.h"

namespace torchbridge::train {
namespace {

std::string learning_rate_name(std::size_t group) { return "plateau.lr." + std::to_string(group); }

class EntryReader {
 public:
  explicit EntryReader(const std::map<std::string, double>& entries) : entries_(entries) {}

  std::optional<double> find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? std::nullopt : std::optional(found->second);
  }
  double at(const std::string& name) const {
    const auto value = find(name);
    if (!value) throw std::invalid_argument("has no state '" + name + "'");
    return *value;
  }
  std::int64_t count_at(const std::string& name) const {
    constexpr double kMost = 1LL << 53;  // a double has no larger range of consecutive integers
    const double value = at(name);
    const bool is_count = value >= 0 && value <= kMost && value == std::floor(value);
    if (!is_count)
      throw std::invalid_argument("has the state '" + name + "' of " + shortest(value) + ", expected a count");
    return static_cast<std::int64_t>(value);
  }

 private:
  const std::map<std::string, double>& entries_;
};

PlateauState plateau_of(const EntryReader& entries) {
  PlateauState state{.learning_rates = {},
                     .best = entries.find("plateau.best"),
                     .bad = entries.count_at("plateau.bad"),
                     .cooldown = entries.count_at("plateau.cooldown")};
  for (std::size_t i = 0; entries.find(learning_rate_name(i)); ++i) {
    state.learning_rates.push_back(entries.at(learning_rate_name(i)));
  }
  return state;
}

}  // namespace

std::map<std::string, double> state_entries(const TrainState& state) {
  std::map<std::string, double> entries = {{"run.seconds", state.seconds},
                                           {"best.without", static_cast<double>(state.early_stop.without)}};
  if (state.train_samples > 0) entries["train_set.samples"] = static_cast<double>(state.train_samples);
  if (state.skips > 0) entries["skips"] = static_cast<double>(state.skips);
  if (state.evaluation_is_due) entries["evaluation.due"] = 1;
  if (state.early_stop.best_loss) {
    entries["best.loss"] = *state.early_stop.best_loss;
    entries["best.step"] = static_cast<double>(state.early_stop.best_step);
  }
  if (const auto& scaler = state.grad_scaler) {
    entries["grad_scaler.scale"] = scaler->scale;
    entries["grad_scaler.growth_tracker"] = static_cast<double>(scaler->growth_tracker);
  }
  if (const auto& plateau = state.plateau) {
    if (plateau->best) entries["plateau.best"] = *plateau->best;
    entries["plateau.bad"] = static_cast<double>(plateau->bad);
    entries["plateau.cooldown"] = static_cast<double>(plateau->cooldown);
    for (std::size_t i = 0; i < plateau->learning_rates.size(); ++i) {
      entries[learning_rate_name(i)] = plateau->learning_rates[i];
    }
  }
  return entries;
}

void read_state_entries(const std::map<std::string, double>& entries, TrainState& state) {
  const EntryReader reader(entries);
  const auto count = [&](const std::string& name) { return reader.find(name) ? reader.count_at(name) : 0; };
  state.seconds = reader.find("run.seconds").value_or(0);
  state.train_samples = count("train_set.samples");
  state.skips = count("skips");
  state.evaluation_is_due = reader.find("evaluation.due").has_value();
  state.early_stop = {
      .best_loss = reader.find("best.loss"), .best_step = count("best.step"), .without = count("best.without")};
  if (reader.find("grad_scaler.scale")) {
    state.grad_scaler = {.scale = reader.at("grad_scaler.scale"),
                         .growth_tracker = reader.count_at("grad_scaler.growth_tracker")};
  }
  if (reader.find(learning_rate_name(0))) state.plateau = plateau_of(reader);
}

}  // namespace torchbridge::train
