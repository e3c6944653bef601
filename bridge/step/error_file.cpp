#include "bridge/step/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/host/text_file.h"

namespace torchbridge {

namespace {

// Lines of /proc/self/uid_map: the first number of a range inside, outside, and how many it has.
uid_t user_outside() {
  const auto map = read_text("/proc/self/uid_map");
  const std::string lines = map && *map ? **map : "";
  for (const std::string_view line : split_at(lines, '\n')) {
    uid_t inside = 0, outside = 0, count = 0;
    const bool is_range =
        std::sscanf(std::string(line).c_str(), "%u %u %u", &inside, &outside, &count) == 3;
    if (is_range && geteuid() - inside < count) return outside + (geteuid() - inside);
  }
  return geteuid();
}

}  // namespace

Result<std::string> error_file_in(const std::string& parent, const std::string& run_id, int restart,
                                  int rank) {
  const std::string folder = parent + "/torch-env-" + std::to_string(user_outside());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{formatted("cannot create {}: {}", folder, std::strerror(errno))};
  }
  struct stat found {
  };  // another user's folder, or a link to one, would let that user read and replace our files
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
      (found.st_mode & 0077) != 0) {
    return Error{formatted("{} is not a folder that belongs to this user alone", folder)};
  }
  return folder + "/" + run_id + "-attempt_" + std::to_string(restart) + "-rank_" +
         std::to_string(rank) + "-error.json";
}

ErrorFile open_error_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  if (path.empty()) return {};
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  return {Socket(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), path.substr(slash + 1)};
}

ErrorFileContent read_error_file(const Socket& folder, const std::string& name,
                                 std::chrono::system_clock::time_point start) {
  using std::chrono::system_clock;
  constexpr std::size_t kMaxSize = 1 << 16;
  const int file =
      openat(folder.descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return {};
  struct stat found {};
  ErrorFileContent content;
  const bool is_ours =
      fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid();
  content.written = system_clock::from_time_t(found.st_mtime) +
                    std::chrono::duration_cast<system_clock::duration>(
                        std::chrono::nanoseconds(found.st_mtim.tv_nsec));
  // A file has the kernel's coarse time, which is up to a tick behind the clock's, or, on some file
  // systems, whole seconds.
  constexpr std::chrono::milliseconds kTick{20}, kSecond{1000};
  const auto slack = found.st_mtim.tv_nsec == 0 ? kSecond : kTick;
  if (is_ours && content.written + slack >= start) {
    content.text.resize(kMaxSize);
    content.text.resize(std::max<ssize_t>(read(file, content.text.data(), content.text.size()), 0));
  }
  close(file);
  return content;
}

}  // namespace torchbridge
