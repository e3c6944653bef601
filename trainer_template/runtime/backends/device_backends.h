// Which backend serves the tensors of which device: parses the argument `backend` of
// init_process_group.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge::train {

struct DeviceBackend {
  std::string device;   // "cpu", "cuda"; empty: all that the backend serves
  std::string backend;  // lower case

  bool operator==(const DeviceBackend&) const = default;
};

// "gloo", or "cpu:gloo,cuda:nccl". Empty: the backend for `device`, and gloo for the CPU, over
// which ranks exchange numbers and texts. Upper case is read as lower case, as in Python. The error
// shows the text.
Result<std::vector<DeviceBackend>> parse_backends(std::string_view text, std::string_view device);

}  // namespace torchbridge::train
