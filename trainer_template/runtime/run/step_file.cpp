#include <torchbridge/train/run/step_file.h>

#include <torchbridge/train/run/output_error.h>

#include <cerrno>
#include <charconv>
#include <istream>
#include <string_view>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// A pipe, a terminal, or what /dev/stdout stands for: it has no past, and nothing is put in its place.
bool is_stream(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return true;
  return fs::is_symlink(path, ignored) && path.string().starts_with("/dev/");
}

std::int64_t step_of_line(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  std::int64_t step = 0;
  if (!line.starts_with(kStart) || !line.ends_with('}')) return -1;
  line.remove_prefix(kStart.size());
  return std::from_chars(line.data(), line.data() + line.size(), step).ec == std::errc() ? step : -1;
}

}  // namespace

std::string copy_lines_until(std::istream& from, std::int64_t last_step, std::ostream& to) {
  std::string last;
  for (std::string line; std::getline(from, line) && !from.eof();) {  // at the end of the file: a line without an end
    const std::int64_t step = step_of_line(line);
    if (step < 0 || step > last_step) continue;
    to << line << '\n';
    if (step == last_step) last = line;
  }
  return last;
}

StepFile::StepFile(const fs::path& path, std::int64_t last_step, const std::string& option) : path_(path) {
  if (path_.empty()) return;
  std::error_code error, ignored;
  errno = 0;
  if (is_stream(path_)) {
    file_.open(path_, std::ios::binary | std::ios::app);
    error.assign(errno, std::generic_category());
  } else {
    if (fs::is_symlink(path_, ignored)) path_ = fs::weakly_canonical(path_);  // the link stays one
    if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), ignored);
    std::ifstream before(path_, std::ios::binary);
    // Written aside and renamed: a kill right here must not lose the curve.
    const fs::path aside = path_.string() + ".tmp";
    errno = 0;
    file_.open(aside, std::ios::binary | std::ios::trunc);
    if (before) last_line_ = copy_lines_until(before, last_step, file_);
    file_ << std::flush;
    error.assign(errno, std::generic_category());
    if (file_) fs::rename(aside, path_, error);
  }
  if (!file_ || error) throw cannot_open(path_, error.message(), option);
}

void StepFile::check() const {
  if (!file_) throw cannot_write(path_);
}

void StepFile::write(const std::string& line) {
  if (!enabled()) return;
  file_ << line + "\n" << std::flush;
  check();
}

void StepFile::add_to_last(const std::string& members) {
  if (last_line_.empty() || last_line_.find(members.substr(0, members.find(':'))) != std::string::npos) return;
  constexpr std::streamoff kEnd = 2;  // "}\n"
  file_.seekp(-kEnd, std::ios::end);
  file_ << members + "}\n" << std::flush;  // one write: a kill leaves the line as it was, or as it is to be
  check();
}

}  // namespace torchbridge::train
