// The options of torchbridge run as one table: parser, help, man page, completion and documentation
// come from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// The program whose option it is.
enum class OptionOrigin { kTorchrun, kTorchLaunch, kOurs };

struct RunOption {
  std::string_view name;  // "log-dir": --log-dir and --log_dir
  char letter = 0;        // 'r': -r
  // "SECONDS", "N|auto|cpu"; what is in lower case is literal. Empty for a flag.
  std::string_view metavar;
  std::string_view default_text;  // stored where no value is given; empty: nothing is stored
  // Whose value is the default where it is set, the first before the other.
  std::string_view variable, other_variable;
  OptionOrigin origin = OptionOrigin::kTorchrun;
  std::string_view group;       // of help texts; equal for neighbours
  std::string_view help;        // without a full stop
  std::string_view difference;  // from the option of its origin; empty where there is none
  // "2.12": the first torch whose program has it; empty: every one from 2.11 on.
  std::string_view since;
  // Stores the value; a flag that is set has "1". The error lacks the name of the option: "'x':
  // expected a number".
  Status (*store)(RunOptions& options, const std::string& value) = nullptr;

  bool is_flag() const { return metavar.empty(); }
};

// In the order in which they are stored, which matters where an error is about two of them.
std::span<const RunOption> run_options();

// The values that the metavar names: auto, cpu and gpu of "N|auto|cpu|gpu".
std::vector<std::string> named_values(const RunOption& option);

// Whether the option takes no other value than those.
bool takes_named_values_only(const RunOption& option);

}  // namespace torchbridge
