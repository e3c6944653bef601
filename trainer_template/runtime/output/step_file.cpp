#include "trainer_template/runtime/output/step_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <istream>
#include <string_view>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/file_support.h"
#include "trainer_template/runtime/output/output_file.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// A pipe, a terminal, or a link such as /dev/stdout: it is written without truncation and lock.
bool is_stream(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return true;
  const std::string name = path.string();
  return fs::is_symlink(path, ignored) && (name.starts_with("/dev/") || name.starts_with("/proc/"));
}

constexpr std::string_view kStart = "{\"step\":", kRun = ",\"run\":\"";

std::int64_t step_of_line(std::string_view line) {
  std::int64_t step = 0;
  if (!line.starts_with(kStart) || !line.ends_with('}')) return -1;
  line.remove_prefix(kStart.size());
  return std::from_chars(line.data(), line.data() + line.size(), step).ec == std::errc() ? step
                                                                                         : -1;
}

// Empty if the line has no run id.
std::string run_of_line(std::string_view line) {
  const auto begin = line.find(kRun);
  if (begin == std::string_view::npos) return {};
  line.remove_prefix(begin + kRun.size());
  return std::string(line.substr(0, line.find('"')));
}

// Makes an empty file if there is none.
Socket locked(const fs::path& path, const char* option) {
  Socket file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.open()) throw cannot_open(path, std::strerror(errno), option);
  if (!lock_file(file, formatted("file '{}'", path.string())))
    throw cannot_open(path, "another run, or another option of this run, writes to it", option);
  return file;
}

}  // namespace

std::optional<KeptLines> lines_until(std::istream& file, std::int64_t last_step) {
  constexpr std::string_view kBlank("\0", 1);  // what a power cut may leave
  KeptLines kept;
  std::int64_t position = 0;
  for (std::string line; std::getline(file, line);) {
    const bool is_whole = !file.eof();
    const std::int64_t step = step_of_line(line);
    const bool can_be_ours = line.starts_with(kStart) ||
                             (!is_whole && (kStart.starts_with(line) || line.starts_with(kBlank)));
    if (position == 0 && !can_be_ours) return std::nullopt;
    if (position == 0 && is_whole) kept.run = run_of_line(line);
    kept.has_later = is_whole && step > last_step;
    if (!is_whole || step > last_step) break;
    position += std::ssize(line) + 1;
    kept.size = position;
    kept.last = step == last_step ? line : "";
  }
  return kept;
}

StepFile::StepFile(const fs::path& path, const RunStart& start, const char* option)
    : run_(start.run) {
  if (path.empty()) return;
  if (is_stream(path)) {
    file_ = RecordFile(path, option);
    return;
  }
  std::error_code ignored;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  lock_ = locked(path, option);
  std::ifstream before(path, std::ios::binary);
  auto kept = lines_until(before, start.step);
  if (!kept)
    throw cannot_open(
        path, R"(its first line does not begin with '{"step":', as all lines of this option do)",
        option);
  if (kept->run && *kept->run != start.run) {
    back_up(path, "belongs to another run", option);
    kept = KeptLines{};
  } else if (kept->has_later && (start.goes_back || start.run.empty())) {
    back_up(path, formatted("has records after step {}, from which this run resumes", start.step),
            option);
  }
  if (ftruncate(lock_.descriptor(), kept->size) != 0)
    throw cannot_open(path, std::strerror(errno), option);
  names_run_ = kept->size > 0;
  last_line_ = kept->last;
  file_ = RecordFile(path, option);
}

void StepFile::write(const std::string& line) {
  if (file_.is_empty()) names_run_ = false;  // others may truncate it
  const std::string run = names_run_ || run_.empty() ? "" : std::string(kRun) + run_ + "\"";
  if (file_.append(line.substr(0, line.size() - 1) + run + "}\n")) names_run_ = true;
}

LastLine StepFile::add_to_last(const std::string& members) {
  if (last_line_.empty() || file_.is_empty()) return LastLine::kMissing;
  if (last_line_.find(members.substr(0, members.find(':'))) != std::string::npos)
    return LastLine::kHadThem;
  // One write: a kill leaves the old line or the new one.
  file_.replace_end("}\n", members + "}\n");
  return LastLine::kExtended;
}

}  // namespace torchbridge::train
