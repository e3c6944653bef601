#include <torchbridge/train/run/step_file.h>

#include <torchbridge/train/run/output_error.h>

#include <cerrno>
#include <charconv>
#include <fstream>
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

StepFile::StepFile(const fs::path& path, std::int64_t last_step, const char* option) {
  if (path.empty()) return;
  if (is_stream(path)) {
    file_ = RecordFile(path, option);
    return;
  }
  std::error_code error, ignored;
  const fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path;  // the link stays one
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), ignored);
  std::ifstream before(target, std::ios::binary);
  // Written aside and renamed: a kill right here must not lose the curve.
  const fs::path aside = target.string() + ".tmp";
  errno = 0;
  std::ofstream kept(aside, std::ios::binary | std::ios::trunc);
  if (before) last_line_ = copy_lines_until(before, last_step, kept);
  kept.close();
  error.assign(errno, std::generic_category());
  if (kept) fs::rename(aside, target, error);
  if (!kept || error) {
    fs::remove(aside, ignored);
    throw cannot_open(target, error.message(), option);
  }
  file_ = RecordFile(target, option);
}

void StepFile::write(const std::string& line) { file_.append(line + "\n"); }

void StepFile::add_to_last(const std::string& members) {
  if (last_line_.empty() || last_line_.find(members.substr(0, members.find(':'))) != std::string::npos) return;
  file_.replace_end("}\n", members + "}\n");  // one write: a kill leaves the line as it was, or as it is to be
}

}  // namespace torchbridge::train
