// How a rank fails: the exceptions of the trainer, and the exit codes of its process.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace torchbridge::train {

enum class ExitCode {
  kDone = 0,
  kFailed = 1,
  kBadOptions = 2,
  kRequeue = 75,  // stopped after a save, and the same command resumes: EX_TEMPFAIL of sysexits.h
};

// The exit code of a program that signal `number` ended, as shells report it.
inline ExitCode code_of_signal(int number) { return static_cast<ExitCode>(128 + number); }

// An error on this rank. The message is one line for the user.
struct TrainError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Another rank failed and prints the reason: this rank prints nothing.
struct PeerFailed : std::runtime_error {
  PeerFailed() : std::runtime_error("another rank failed") {}
};

// Bad options or a bad launch, found before the process group exists. All ranks find it, and rank 0
// prints it. Code kDone is for --help.
struct EarlyExit : std::runtime_error {
  EarlyExit(ExitCode exit_code, const std::string& text)
      : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

// The text of an exception as one line, without the stack that c10 adds.
std::string one_line(const std::exception& error);

}  // namespace torchbridge::train
