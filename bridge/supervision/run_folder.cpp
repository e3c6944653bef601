#include "bridge/supervision/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

Result<std::string> make_unique_folder(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return Error{formatted("cannot create a folder '{}...': {}: choose another with --log-dir",
                           printable(prefix), std::strerror(errno))};
  }
  return path;
}

bool keeps_logs(const RunOptions& options) {
  const auto has = [](const StreamSelection& selection) {
    return selection.all != kNoStream || !selection.by_local_rank.empty();
  };
  const bool is_filtered =
      !options.duplicate_stdout_filters.empty() || !options.duplicate_stderr_filters.empty();
  return has(options.redirects) || has(options.tee) || is_filtered;
}

}  // namespace

std::string run_file_name(std::string run_id) {
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  return run_id.substr(0, 200);
}

Result<RunFolder> RunFolder::make(const RunOptions& options, const std::string& run_id,
                                  const std::string& temporary) {
  RunFolder folder;
  if (options.log_dir == "/dev/null") return folder;
  std::string parent = options.log_dir;
  if (parent.empty()) {
    const auto made = make_unique_folder(temporary + "/torchbridge_");
    if (!made) return made.error();
    parent = *made;
    if (!keeps_logs(options)) folder.temporary_ = parent;
  }
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error)
    return Error{
        formatted("--log-dir '{}': cannot create it: {}", printable(parent), error.message())};
  const auto made = make_unique_folder(parent + "/" + run_file_name(run_id) + "_");
  if (!made) return folder.remove_if_temporary(), made.error();
  folder.path_ = *made;
  return folder;
}

Status RunFolder::begin_attempt(int attempt, int local_world_size) {
  if (!exists()) return Ok{};
  attempt_ = path_ + "/attempt_" + std::to_string(attempt);
  std::error_code error;
  std::filesystem::remove_all(attempt_, error);
  for (int local_rank = 0; local_rank < local_world_size && !error; ++local_rank) {
    std::filesystem::create_directories(worker_file(local_rank, ""), error);
  }
  if (error)
    return Error{formatted("cannot create the folder of logs '{}': {}", printable(attempt_),
                           error.message())};
  return Ok{};
}

std::string RunFolder::attempt_file(const std::string& name) const {
  return exists() ? attempt_ + "/" + name : "";
}

std::string RunFolder::worker_file(int local_rank, const std::string& name) const {
  return exists() ? attempt_ + "/" + std::to_string(local_rank) + "/" + name : "";
}

void RunFolder::remove_if_temporary() const {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

}  // namespace torchbridge
