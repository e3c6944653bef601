// The folder of a run's logs and error files, as torchrun lays it out.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// LOGDIR/<run id>_<random>, mode 0700; below it attempt_<n>/<local rank>/{stdout.log, stderr.log,
// error.json}. Without --log-dir LOGDIR is a new folder below TMPDIR. It is temporary, to be
// removed when the run ends, unless logs were asked for or keep() was called.
// With --log-dir /dev/null there is none: files are not written, and error files have no name.
class RunFolder {
 public:
  // An error names the folder and the reason.
  static Result<RunFolder> make(const RunOptions& options, const std::string& run_id,
                                const std::string& temporary);

  bool exists() const { return !path_.empty(); }
  const std::string& path() const { return path_; }  // empty where there is none

  // Empties and creates the folders of an attempt and its workers.
  Status begin_attempt(int attempt, int local_world_size);

  // In the folder of the attempt begun last; empty where there is no folder.
  std::string attempt_file(const std::string& name) const;
  std::string worker_file(int local_rank, const std::string& name) const;

  // The folder to be removed at the end; empty where none is.
  const std::string& temporary() const { return temporary_; }
  // The user is told of a file in it.
  void keep() { temporary_.clear(); }
  void remove_if_temporary() const;

 private:
  std::string path_, attempt_;
  std::string temporary_;
};

// The part of a file's name that a run id, which may be any text, gives: without slashes, at most
// 200 bytes.
std::string run_file_name(std::string run_id);

}  // namespace torchbridge
