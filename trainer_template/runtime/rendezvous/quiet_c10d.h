// c10d logs errors that are expected here, with stack traces; our own messages replace them.
#pragma once

namespace torchbridge::train {

// While it lives c10d logs nothing below `level`, in the whole process. Several threads may have
// one at the same time.
class QuietC10d {
 public:
  enum Level { kError = 2, kFatal = 3 };  // of TORCH_CPP_LOG_LEVEL

  explicit QuietC10d(Level level);
  ~QuietC10d();
  QuietC10d(const QuietC10d&) = delete;
  QuietC10d& operator=(const QuietC10d&) = delete;
};

}  // namespace torchbridge::train
