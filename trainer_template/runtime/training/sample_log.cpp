#include "trainer_template/runtime/training/sample_log.h"

#include <sstream>

#include "trainer_template/runtime/training/step_sums.h"

namespace torchbridge::train {

std::string samples_text(std::span<const std::vector<std::int64_t>> batches) {
  std::string text;
  for (const auto& batch : batches) {
    if (&batch != &batches.front()) text += ';';
    for (std::size_t i = 0; i < batch.size(); ++i)
      text += (i == 0 ? "" : ",") + std::to_string(batch[i]);
  }
  return text;
}

std::vector<std::string> sample_log_lines(const StepMetrics& record,
                                          std::span<const std::string> ranks) {
  std::vector<std::string> lines;
  for (const std::string& rank : ranks) {
    std::istringstream parts(rank);
    std::string part;
    for (std::size_t i = 0; std::getline(parts, part, ';'); ++i) {
      if (i == lines.size()) {
        lines.push_back("{\"step\":" + std::to_string(record.step) +
                        ",\"epoch\":" + std::to_string(record.epoch) +
                        (record.skipped ? ",\"skipped\":true" : "") + ",\"samples\":[");
      } else {
        lines[i] += ',';
      }
      lines[i] += "[" + part + "]";
    }
  }
  for (std::string& line : lines) line += "]}";
  return lines;
}

SampleLog::SampleLog(ProcessGroup& group, const std::filesystem::path& path, const RunStart& start)
    : group_(group), enabled_(!group.broadcast(path.string()).empty()), file_("", {}, "") {
  if (!enabled_) return;
  all_or_none(group_,
              [&] { file_ = StepFile(group_.is_first() ? path : "", start, "--sample-log"); });
}

void SampleLog::read(const FinishedStep& step) {
  if (!enabled_) return;
  const std::vector<std::string> ranks = group_.all_gather(samples_text(step.samples));
  if (!group_.is_first()) return;
  for (const std::string& line : sample_log_lines(step.record, ranks)) file_.write(line);
}

void SampleLog::check_complete() {
  if (enabled_) all_or_none(group_, [&] { file_.check_complete(); });
}

}  // namespace torchbridge::train
