#include <torchbridge/train/run/step_file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <torchbridge/train/file_lock.h>
#include <torchbridge/train/run/output_error.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
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

bool is_at(const fs::path& path, const Socket& file) {
  struct stat here {}, there {};
  return fstat(file.descriptor(), &here) == 0 && stat(path.c_str(), &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

// An empty file where there is none.
Socket locked(const fs::path& path, const char* option) {
  while (true) {
    Socket file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file.open()) throw cannot_open(path, std::strerror(errno), option);
    if (!lock_file(file, "file '" + path.string() + "'")) throw cannot_open(path, "another run, or another option of this one, writes it", option);
    if (is_at(path, file)) return file;  // else the run that had it before has put another in its place
  }
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
  const Socket lock = locked(target, option);
  std::ifstream before(target, std::ios::binary);
  // Written aside and renamed: a kill right here must not lose the curve.
  const fs::path aside = target.string() + ".tmp";
  errno = 0;
  std::ofstream kept(aside, std::ios::binary | std::ios::trunc);
  if (before) last_line_ = copy_lines_until(before, last_step, kept);
  kept.close();
  error.assign(errno, std::generic_category());
  lock_ = Socket(open(aside.c_str(), O_RDWR | O_CLOEXEC));
  if (lock_.open()) flock(lock_.descriptor(), LOCK_EX | LOCK_NB);  // which nobody else has opened: it is ours alone until it has its name
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
