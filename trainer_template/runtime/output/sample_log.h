// Which samples each optimizer step took, on which rank: the proof that an epoch has each sample once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/output/step_file.h"

namespace torchbridge::train {

// One file for all ranks, written by rank 0, which the others tell their samples: an all-gather a step.
// scripts/check_sample_log reads it.
class SampleLog {
 public:
  // Collective: throws on all ranks where the file cannot be opened as StepFile does it. The path is rank 0's; without
  // one nothing happens.
  SampleLog(ProcessGroup& group, const std::filesystem::path& path, const RunStart& start);

  // Collective: before a checkpoint of the step, so that the file never lacks a step that a checkpoint holds.
  // `batches`: this rank's samples in the step, batch by batch.
  void write(const StepRecord& record, std::span<const std::vector<std::int64_t>> batches);
  // Collective: throws on all ranks where a line is missing because the disk was full, say.
  void check_complete();

 private:
  ProcessGroup& group_;
  bool enabled_;
  StepFile file_;
};

// A line for each of a step's batches, {"step":7,"epoch":0,"samples":[[5,1],[4,9]]} with the samples of rank 0, 1 ...,
// in their order. ranks[i] is what samples_text gave on rank i.
std::vector<std::string> sample_log_lines(const StepRecord& record, std::span<const std::string> ranks);

// "5,1;3,2": the samples of one rank, batch by batch.
std::string samples_text(std::span<const std::vector<std::int64_t>> batches);

}  // namespace torchbridge::train
