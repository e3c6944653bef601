// Carries the output of one worker's stream to its log file and, by lines, to the console.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/net/socket.h"
#include "bridge/run_values/run_options.h"
#include "bridge/supervision/console_writer.h"

namespace torchbridge {

// Lines that contain any of the texts go to the file too (--duplicate-stdout-filters).
struct LineFilter {
  std::vector<std::string> texts;
  int file = -1;  // descriptor, of the owner; -1: no filter
};

// How a line is printed.
struct LineStyle {
  LogFormat format = LogFormat::kPrefix;
  std::string prefix;  // with LogFormat::kPrefix
  int rank = -1;  // with LogFormat::kJson: {"time": seconds, "rank": 0, "stream": "stdout", "line":
                  // "..."}; -1: none
  std::string stream;
};

// The line as it is printed, with a newline.
std::string styled(const LineStyle& style, std::string_view line);

// A line ends with a newline or, as a progress bar's, with a carriage return; it is printed whole,
// with a newline.
class StreamRelay {
 public:
  // `source` is what the worker writes to; `file` is a log file, or not open; `console` may be
  // null. Both must outlive the relay.
  StreamRelay(Socket source, Socket file, ConsoleWriter* console, LineStyle style,
              LineFilter filter);

  int source() const { return source_.descriptor(); }  // -1 after the worker's last byte
  bool waits_for_console() const { return console_ != nullptr && console_->is_full(); }

  // Carries what is there now. False at the end of the stream, whose last line is ended if it was
  // not.
  bool carry();

 private:
  void carry_lines(std::string_view text);
  void print_line(std::string_view line);
  void write_file(std::string_view text);

  Socket source_, file_;
  ConsoleWriter* console_;
  LineStyle style_;
  LineFilter filter_;
  std::string partial_;        // a line without its end
  bool has_returned_ = false;  // the last line ended with a carriage return
};

}  // namespace torchbridge
