#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <span>
#include <variant>

#include <torchbridge/lr_schedule.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/nearest_name.h"
#include "bridge/base/take_until.h"
#include "trainer_template/runtime/base/number_text.h"

namespace torchbridge::train {

using Field = std::variant<double LrSchedule::*, std::int64_t LrSchedule::*, bool LrSchedule::*,
                           std::vector<std::int64_t> LrSchedule::*>;

struct LrKey {
  const char* name;
  Field field;
  double least = 0, most = 1e300;
};

// `t` is Python's last_epoch, `total` the steps that the kind has for itself. Whole numbers are
// exact as double.
struct LrKind {
  const char* name;
  double (*rate)(const LrSchedule& schedule, double base, double t, double total);
  std::vector<LrKey> keys;
};

namespace {

// The order of operations is Python's, expression by expression: that makes the last bit equal.

double constant(const LrSchedule&, double base, double, double) { return base; }

double step(const LrSchedule& s, double base, double t, double) {
  return base * std::pow(s.gamma, std::floor(t / static_cast<double>(s.step_size)));
}

double multi_step(const LrSchedule& s, double base, double t, double) {
  const auto passed = std::ranges::count_if(
      s.milestones, [&](std::int64_t each) { return static_cast<double>(each) <= t; });
  return base * std::pow(s.gamma, static_cast<double>(passed));
}

double cosine(const LrSchedule& s, double base, double t, double total) {
  if (total <= 0) return base;
  const double angle = std::numbers::pi * t / total;
  return s.eta_min + (base - s.eta_min) * (1 + std::cos(angle)) / 2;
}

double polynomial(const LrSchedule& s, double base, double t, double total) {
  if (total <= 0) return base;
  return base * std::pow(1.0 - std::min(t, total) / total, s.power);
}

// One phase of one-cycle, by the names of its ends: 0 is the start of the cycle, 1 its peak, 2 its
// end.
struct CyclePhase {
  double end_step;
  int from, to;
};

std::vector<CyclePhase> phases_of(const LrSchedule& s, double steps) {
  if (s.three_phase)
    return {
        {s.pct_start * steps - 1, 0, 1}, {2 * s.pct_start * steps - 2, 1, 0}, {steps - 1, 0, 2}};
  return {{s.pct_start * steps - 1, 0, 1}, {steps - 1, 1, 2}};
}

double annealed(const LrSchedule& s, double from, double to, double pct) {
  if (s.linear) return (to - from) * pct + from;
  return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * pct) + 1);
}

double one_cycle_value(const LrSchedule& s, const double (&ends)[3], double t, double total) {
  const auto phases = phases_of(s, total);
  // The last step is at total - 1. Smaller ones (StepScale) come after it, within it.
  const double at = std::min(t, total - 1);
  double start = 0;
  for (std::size_t i = 0;; ++i) {
    const CyclePhase& phase = phases[i];
    if (at <= phase.end_step || i + 1 == phases.size()) {
      // Python divides by zero where a phase has no steps.
      const double pct = phase.end_step == start ? 1.0 : (at - start) / (phase.end_step - start);
      return annealed(s, ends[phase.from], ends[phase.to], pct);
    }
    start = phase.end_step;
  }
}

double one_cycle(const LrSchedule& s, double base, double t, double total) {
  const double initial = base / s.div_factor;
  return one_cycle_value(s, {initial, base, initial / s.final_div_factor}, t, total);
}

const LrKind kKinds[] = {
    {"constant", constant, {}},
    {"step", step, {{"step_size", &LrSchedule::step_size, 1}, {"gamma", &LrSchedule::gamma}}},
    {"multi-step",
     multi_step,
     {{"milestones", &LrSchedule::milestones}, {"gamma", &LrSchedule::gamma}}},
    {"cosine", cosine, {{"eta_min", &LrSchedule::eta_min}}},
    {"polynomial", polynomial, {{"power", &LrSchedule::power}}},
    {"one-cycle",
     one_cycle,
     {{"pct_start", &LrSchedule::pct_start, 0, 1},
      {"div_factor", &LrSchedule::div_factor, 1e-300},
      {"final_div_factor", &LrSchedule::final_div_factor, 1e-300},
      {"linear", &LrSchedule::linear},
      {"three_phase", &LrSchedule::three_phase},
      {"cycle_momentum", &LrSchedule::cycle_momentum},
      {"base_momentum", &LrSchedule::base_momentum, 0, 1},
      {"max_momentum", &LrSchedule::max_momentum, 0, 1}}},
    {"plateau",
     constant,
     {{"factor", &LrSchedule::factor, 0, std::nextafter(1.0, 0.0)},
      {"patience", &LrSchedule::patience},
      {"threshold", &LrSchedule::threshold},
      {"absolute", &LrSchedule::absolute},
      {"cooldown", &LrSchedule::cooldown},
      {"min_lr", &LrSchedule::min_lr},
      {"eps", &LrSchedule::eps}}},
};

bool is(const LrSchedule& schedule, std::string_view kind) {
  return schedule.kind && schedule.kind->name == kind;
}

// Each overload of set() parses a value and returns what was expected, or "" for a valid value.

std::string expected_range(const LrKey& key, const char* what) {
  if (key.most < 1e300) {
    return formatted("expected {} from {} to {}", what, shortest(key.least), shortest(key.most));
  }
  return formatted("expected {} of at least {}", what, shortest(key.least));
}

std::string set(const LrKey& key, double& value, std::string_view text) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() &&
                    value >= key.least && value <= key.most;
  return good ? "" : expected_range(key, "a number");
}

std::string set(const LrKey& key, std::int64_t& value, std::string_view text) {
  const auto number = parse_integer(text, static_cast<std::int64_t>(key.least), 1'000'000'000'000);
  if (number) value = *number;
  return number ? "" : expected_range(key, "a whole number");
}

std::string set(const LrKey&, bool& value, std::string_view text) {
  value = text == "true";
  return text == "true" || text == "false" ? "" : "expected true or false";
}

std::string set(const LrKey&, std::vector<std::int64_t>& values, std::string_view text) {
  values.clear();
  for (const std::string_view step : split_at(text, '+')) {
    const auto number = parse_integer(step, 1, 1'000'000'000'000);
    if (!number || (!values.empty() && *number < values.back()))
      return "expected ascending steps, as in 100+200";
    values.push_back(*number);
  }
  return "";
}

}  // namespace

Result<LrSchedule> parse_lr_schedule(std::string_view text, std::span<const CustomSchedule> own) {
  const auto found = std::ranges::find(own, text, &CustomSchedule::name);
  if (found != own.end()) return LrSchedule{.own = found->factor};
  const auto fail = [&](const std::string& what) {
    return Error{formatted("'{}': {}", text, what)};
  };
  std::string_view list = text;
  const std::string_view name = take_until(list, ':');
  const auto kind = std::ranges::find(kKinds, name, &LrKind::name);
  if (kind == std::end(kKinds)) {
    std::vector<std::string> names;
    for (const LrKind& each : kKinds) names.emplace_back(each.name);
    for (const CustomSchedule& each : own) names.push_back(each.name);
    return fail(
        formatted("expected one of {}{}", lr_schedule_kinds(own), did_you_mean(name, names)));
  }
  LrSchedule schedule{.kind = kind};
  std::vector<std::vector<LrKey>::const_iterator> seen;
  const bool has_list = name.size() < text.size();
  for (std::string_view value : has_list ? split_at(list, ',') : std::vector<std::string_view>()) {
    const std::string_view given = take_until(value, '=');
    const auto key = std::ranges::find(kind->keys, given, &LrKey::name);
    if (key == kind->keys.end()) {
      return fail(formatted(
          "'{}' is not a key of {}{}", given, kind->name,
          kind->keys.empty() ? ", which has none"
                             : formatted("; expected {}", joined(kind->keys, ", ", &LrKey::name))));
    }
    if (std::ranges::count(seen, key) > 0) return fail(formatted("{} is given twice", key->name));
    seen.push_back(key);
    const std::string wrong =
        std::visit([&](auto field) { return set(*key, schedule.*field, value); }, key->field);
    if (!wrong.empty()) return fail(formatted("{}={}: {}", key->name, value, wrong));
  }
  if (is(schedule, "multi-step") && schedule.milestones.empty()) {
    return fail("milestones is missing, as in multi-step:milestones=100+200");
  }
  return schedule;
}

std::string lr_schedule_kinds(std::span<const CustomSchedule> own) {
  return joined(kKinds, ", ", &LrKind::name) +
         (own.empty() ? "" : ", " + joined(own, ", ", &CustomSchedule::name));
}

double learning_rate(const LrSchedule& schedule, double base, std::int64_t step) {
  double t = schedule.scale.count(step - 1);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (t < warmup) {
    if (warmup == 1) return base;
    const double start = 1.0 / warmup;
    return base * (start + (1.0 - start) * std::min(t, warmup - 1) / (warmup - 1));
  }
  t -= warmup;
  if (schedule.own) return base * schedule.own(t, schedule.total_steps - warmup);
  return schedule.kind ? schedule.kind->rate(schedule, base, t, schedule.total_steps - warmup)
                       : base;
}

std::optional<double> cycled_momentum(const LrSchedule& schedule, std::int64_t step) {
  if (!cycles_momentum(schedule)) return std::nullopt;
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  return one_cycle_value(
      schedule, {schedule.max_momentum, schedule.base_momentum, schedule.max_momentum},
      std::max(schedule.scale.count(step - 1) - warmup, 0.0), schedule.total_steps - warmup);
}

bool is_plateau(const LrSchedule& schedule) { return is(schedule, "plateau"); }

bool cycles_momentum(const LrSchedule& schedule) {
  return is(schedule, "one-cycle") && schedule.cycle_momentum;
}

}  // namespace torchbridge::train
