// A log of the samples of each optimizer step, by rank. It proves that an epoch has each sample
// once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <torchbridge/part.h>
#include <torchbridge/process_group.h>

#include "trainer_template/runtime/output/metrics.h"
#include "trainer_template/runtime/output/step_file.h"

namespace torchbridge::train {

// One file for all ranks, written by rank 0. Each step costs an all-gather of the ranks' samples.
// scripts/check_sample_log checks the file.
class SampleLog final : public Part {
 public:
  // Collective: throws on all ranks if StepFile cannot open the file. The path is rank 0's; an
  // empty one writes nothing.
  SampleLog(ProcessGroup& group, const std::filesystem::path& path, const RunStart& start);

  // Collective. Before a checkpoint of the step, so that the file never lacks a step that a
  // checkpoint has.
  void read(const FinishedStep& step) override;
  // Collective: throws on all ranks if a line is missing, as after a full disk.
  void check_complete();

 private:
  ProcessGroup& group_;
  bool enabled_;
  StepFile file_;
};

// A line for each of a step's batches, {"step":7,"epoch":0,"samples":[[5,1],[4,9]]} with the
// samples of rank 0, 1 ..., in their order. ranks[i] is samples_text() of rank i.
std::vector<std::string> sample_log_lines(const StepMetrics& record,
                                          std::span<const std::string> ranks);

// "5,1;3,2": the samples of one rank, batch by batch.
std::string samples_text(std::span<const std::vector<std::int64_t>> batches);

}  // namespace torchbridge::train
