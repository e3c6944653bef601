// Where the output of each worker of an attempt goes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bridge/run_values/run_options.h"
#include "bridge/supervision/console_writer.h"
#include "bridge/supervision/run_folder.h"
#include "bridge/supervision/stream_relay.h"

namespace torchbridge {

// Standard output and error of the agent.
struct Consoles {
  ConsoleWriter out{1}, err{2};
};

// What a worker is started with: descriptors that this process closes afterwards; not open: the
// agent's own.
struct WorkerOutput {
  Socket out, err;
};

// What is printed before each line of a worker.
struct LinePrefix {
  std::string host;        // ${hostname} of --log-line-prefix-template
  bool has_colour = true;  // on a terminal; not with NO_COLOR
};

// The relays of an attempt. A stream that is neither relayed nor redirected is the agent's own: a
// terminal then is one for the worker. A relayed one is a pseudo terminal where the agent's is a
// terminal, else a pipe.
class WorkerStreams {
 public:
  // `folder` has begun the attempt.
  WorkerStreams(const RunOptions& options, const RunFolder& folder, Consoles& consoles,
                LinePrefix prefix);

  // Opens the files and pipes of one worker. An error names the file.
  Result<WorkerOutput> open(int local_rank, int rank);

  // Those whose stream has not ended.
  const std::vector<std::unique_ptr<StreamRelay>>& relays() const { return relays_; }
  void drop_ended();
  // Carries what is left without waiting for more: what a worker's own children still write is not
  // waited for.
  void carry_rest();

 private:
  Result<Socket> open_stream(int stream, int local_rank, int rank);
  Status open_filters();

  const RunOptions& options_;
  const RunFolder& folder_;
  Consoles& consoles_;
  const LinePrefix prefix_;
  Socket filtered_out_, filtered_err_;
  std::vector<std::unique_ptr<StreamRelay>> relays_;
};

// torchrun's prefix "[default0]:", or --log-line-prefix-template with ${role_name}, ${rank},
// ${local_rank} and ${hostname} replaced.
std::string line_prefix(const RunOptions& options, const std::string& host, int rank,
                        int local_rank);

}  // namespace torchbridge
