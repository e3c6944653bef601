// Child processes of a test: watched, signalled, and waited for with a deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// A child process with its output in files. The destructor kills it.
class Process {
 public:
  Process(const Words& command, const Variables& variables, const std::filesystem::path& output);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  // The exit code, 128 + signal, or -1 when it did not end within the time, which is the machine's
  // as in eventually(); then it is killed.
  int wait(std::chrono::milliseconds time);
  void signal(int number) const;
  pid_t pid() const { return pid_; }  // -1 where it has ended
  // Whether it has ended; wait() returns its exit code.
  bool ended();
  // Whether it is stopped, by SIGSTOP or the like.
  bool stopped() const;
  // Whether it has a handler for the signal by now.
  bool catches(int signal) const;
  std::string out() const;
  std::string error() const;

 private:
  pid_t pid_ = -1;
  int code_ = 0;
  std::filesystem::path output_;
};

// Without their newlines.
Words lines_of(const std::string& text);

// Waits until `fact` holds; false when it does not within the time. That is time that the machine
// had: while it stands still or computes for others, the clock runs slower.
bool eventually(const std::function<bool()>& fact,
                std::chrono::milliseconds time = std::chrono::seconds(30));
