// A table of numbers as a data set: one column is the target, the others are the inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/formats/csv.h"

namespace torchbridge::train {

enum class TargetKind { kNumber, kClass };  // a float; a class number from 0 on

struct TableOptions {
  CsvOptions csv;
  std::string target;  // name of the column; empty: the last one
  TargetKind kind = TargetKind::kNumber;
};

// inputs: [samples, columns - 1] float, in the file's order of columns. targets: [samples] float, or int64 for classes.
class Table : public Dataset {
 public:
  // Reads the file into memory, 4 bytes a number. Throws TrainError, which names the file, and line and column where
  // there is one.
  Table(const std::filesystem::path& path, const TableOptions& options);

  std::int64_t size() const override { return table_.rows; }
  std::int64_t features() const { return table_.columns - 1; }
  // All names in the file's order, the target's too; empty without a header.
  const std::vector<std::string>& columns() const { return table_.names; }
  std::int64_t classes() const { return classes_; }  // highest class + 1; 0 for numbers
  Batch collate(std::span<const std::int64_t> indices) const override;
  // The numbers, and which column is the target.
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(std::span(table_.values)), std::as_bytes(std::span(&target_, 1))};
  }

 private:
  void count_classes(const std::filesystem::path& path);
  float target_of(std::int64_t row) const { return table_.values[row * table_.columns + target_]; }

  NumberTable table_;
  std::int64_t target_ = 0, classes_ = 0;
  const TargetKind kind_;
};

}  // namespace torchbridge::train
