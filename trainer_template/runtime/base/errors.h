// How a rank fails: the exceptions of the trainer, and the exit codes of its process.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "bridge/base/result.h"

namespace torchbridge::train {

enum class ExitCode {
  kDone = 0,
  kFailed = 1,
  kBadOptions = 2,
  kRequeue = 75,  // stopped in order, and the same command goes on: EX_TEMPFAIL of sysexits.h
};

// Of a program that such a signal ended, as shells have it.
inline ExitCode code_of_signal(int number) { return static_cast<ExitCode>(128 + number); }

// Something went wrong on this rank; the message is one line for the user.
struct TrainError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Another rank failed and says why: this one ends without a word.
struct PeerFailed : std::runtime_error {
  PeerFailed() : std::runtime_error("another rank failed") {}
};

// Bad options or a bad launch, found before the ranks know each other: rank 0 speaks for all. Code kDone is --help.
struct EarlyExit : std::runtime_error {
  EarlyExit(ExitCode exit_code, const std::string& text) : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw TrainError(result.error().message);
  return *std::move(result);
}

}  // namespace torchbridge::train
