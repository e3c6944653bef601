#include <cmath>

#include <torchbridge/errors.h>
#include <torchbridge/part.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/number_text.h"

namespace torchbridge::train {
namespace {

std::string full_name(const std::string& name, const std::string& key) {
  return key.empty() ? name : name + "." + key;
}

bool is_of(const std::string& name, const std::string& number) {
  return number == name || number.starts_with(name + ".");
}

}  // namespace

SavedNumbers::SavedNumbers(const std::string& name, const PartNumbers& all) : name_(name) {
  for (const auto& [number, value] : all) {
    if (is_of(name, number)) numbers_[number == name ? "" : number.substr(name.size() + 1)] = value;
  }
}

std::optional<double> SavedNumbers::find(const std::string& key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

double SavedNumbers::at(const std::string& key) const {
  const auto value = find(key);
  if (!value)
    throw TrainError(formatted("the checkpoint has no state '{}'", full_name(name_, key)));
  return *value;
}

std::int64_t SavedNumbers::count_at(const std::string& key) const {
  constexpr double kMost = 1LL << 53;  // a double has no larger range of consecutive integers
  const double value = at(key);
  if (value >= 0 && value <= kMost && value == std::floor(value))
    return static_cast<std::int64_t>(value);
  throw TrainError(formatted("the checkpoint has the state '{}' of {}, expected a count",
                             full_name(name_, key), shortest(value)));
}

void save_numbers(const std::string& name, const PartNumbers& numbers, PartNumbers& all) {
  std::erase_if(all, [&](const auto& entry) { return is_of(name, entry.first); });
  for (const auto& [key, value] : numbers) all[full_name(name, key)] = value;
}

}  // namespace torchbridge::train
