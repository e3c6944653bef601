// Ranks as processes: started with torchrun's variables, watched, killed, and waited for with a
// deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/free_port.h"
#include "tests/support/temporary_folder.h"

// A job of `world_size` ranks of one program on a free port of this host.
class Ranks {
 public:
  Ranks(int world_size, const Words& command, const Variables& more = {});
  // Only some of the ranks of a job; MASTER_PORT as given.
  Ranks(const std::vector<int>& ranks, int world_size, int port, const Words& command,
        const Variables& more = {});

  // Waits for all ranks that were not killed; with a sanitizer four times as long. Returns an exit
  // code for each rank, -1 for one that hung.
  std::vector<int> wait(std::chrono::milliseconds time = std::chrono::seconds(60));
  void kill_rank(std::size_t index, int signal);
  bool ended(std::size_t index) { return processes_[index].ended(); }
  bool stopped(std::size_t index) const { return processes_[index].stopped(); }
  bool catches(std::size_t index, int signal) const { return processes_[index].catches(signal); }
  std::string out(std::size_t index) const { return processes_[index].out(); }
  std::string error(std::size_t index) const { return processes_[index].error(); }
  // Of all ranks, in their order.
  std::string errors() const;
  int port() const { return port_; }

 private:
  void start(const std::vector<int>& ranks, int world_size, const Words& command,
             const Variables& more);
  TemporaryFolder folder_;
  int port_ = 0;
  std::vector<Process> processes_;
};

// All ranks end with exit code 0.
void expect_success(Ranks& ranks);
// All ranks fail within 20 s, none by a signal, and `expected` is in their stderr.
void expect_error(Ranks& ranks, const std::string& expected);
// The same, and stderr of all ranks has one line only.
void expect_one_line(Ranks& ranks, const std::string& expected);

// The trainer with these options, quiet.
Words trainer(const Words& options);
// The losses of a metrics file, by step from 1; a missing or repeated step fails the test.
std::vector<double> losses(const std::filesystem::path& metrics);
int lines_in(const std::string& text);
