#include "trainer_template/runtime/backends/device_backends.h"

#include <algorithm>
#include <cctype>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge::train {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_';
  });
}

}  // namespace

Result<std::vector<DeviceBackend>> parse_backends(std::string_view text, std::string_view device) {
  if (text.empty()) {
    if (device == "cuda") return std::vector<DeviceBackend>{{"cpu", "gloo"}, {"cuda", "nccl"}};
    if (device == "cpu") return std::vector<DeviceBackend>{{"cpu", "gloo"}};
    return Error{formatted("no default backend for the device '{}': name one", printable(device))};
  }
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto wrong = [&](const std::string& why) {
    return Error{
        formatted("backend '{}': {}; expected a name (gloo, nccl, mpi), or DEVICE:NAME,DEVICE:NAME "
                  "as cpu:gloo,cuda:nccl",
                  printable(text), why)};
  };
  std::vector<DeviceBackend> found;
  if (lower.find_first_of(":,") == std::string::npos) {
    if (!is_name(lower)) return wrong("this is not a name");
    found.push_back({"", lower});
    return found;
  }
  for (const std::string_view part : split_at(lower, ',')) {
    const std::string pair(part);
    const std::size_t colon = pair.find(':');
    if (colon == std::string::npos) return wrong(formatted("'{}' has no device", printable(pair)));
    DeviceBackend one{pair.substr(0, colon), pair.substr(colon + 1)};
    if (!is_name(one.device) || !is_name(one.backend))
      return wrong(formatted("'{}' is not DEVICE:NAME", printable(pair)));
    if (std::ranges::count(found, one.device, &DeviceBackend::device) > 0)
      return wrong(formatted("the device '{}' is named twice", one.device));
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace torchbridge::train
