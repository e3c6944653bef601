#include <algorithm>
#include <cmath>

#include <torchbridge/data.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

constexpr double kMostClasses = 1 << 24;

std::int64_t target_column(const NumberTable& table, const std::string& name,
                           const std::filesystem::path& path) {
  if (name.empty()) return table.columns - 1;
  const auto found = std::find(table.names.begin(), table.names.end(), name);
  if (found != table.names.end()) return found - table.names.begin();
  const std::string names = joined(table.names, ", ");
  throw TrainError(formatted("{}: has no column '{}'; {}", path.string(), name,
                             names.empty() ? "its columns have no names"
                                           : formatted("expected one of {}", printable(names))));
}

}  // namespace

Table::Table(const std::filesystem::path& path, const TableOptions& options)
    : table_(read_csv(path, options.csv)),
      target_(target_column(table_, options.target, path)),
      kind_(options.kind) {
  if (table_.columns < 2)
    throw TrainError(formatted("{}: has one column, expected inputs and a target", path.string()));
  if (kind_ == TargetKind::kClass) count_classes(path);
}

void Table::count_classes(const std::filesystem::path& path) {
  for (std::int64_t row = 0; row < table_.rows; ++row) {
    const double value = target_of(row);
    if (value < 0 || value >= kMostClasses || value != std::floor(value)) {
      throw TrainError(
          formatted("{}: line {}, column {}: {} is not a class; expected a whole number from 0 on",
                    path.string(), table_.line_of(row), target_ + 1, std::to_string(value)));
    }
    classes_ = std::max(classes_, static_cast<std::int64_t>(value) + 1);
  }
}

Batch Table::collate(std::span<const std::int64_t> indices) const {
  const auto count = std::ssize(indices);
  Batch batch;
  batch.inputs = batch_tensor({count, features()}, at::kDouble);
  batch.targets = batch_tensor({count}, kind_ == TargetKind::kClass ? at::kLong : at::kDouble);
  auto* input = batch.inputs.mutable_data_ptr<double>();
  for (const std::int64_t index : indices) {
    const double* row = table_.values.data() + index * table_.columns;
    input = std::copy(row, row + target_, input);
    input = std::copy(row + target_ + 1, row + table_.columns, input);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const double target = target_of(indices[i]);
    if (kind_ == TargetKind::kClass) {
      batch.targets.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(target);
    } else {
      batch.targets.mutable_data_ptr<double>()[i] = target;
    }
  }
  return batch;
}

}  // namespace torchbridge::train
