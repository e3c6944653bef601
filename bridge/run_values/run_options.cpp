#include "bridge/run_values/run_options.h"

#include <climits>

#include "bridge/base/env_map.h"

namespace torchbridge {

RendezvousTimes rendezvous_times(const RunOptions& options) {
  RendezvousTimes times;
  const auto set = [&](const char* key, int& value) {
    const auto given = options.rdzv_conf.find(key);
    const auto number = given == options.rdzv_conf.end() ? std::nullopt : parse_integer(given->second, 1, INT_MAX);
    if (number) value = static_cast<int>(*number);
  };
  set("timeout", times.join_timeout);
  set("join_timeout", times.join_timeout);
  set("last_call_timeout", times.last_call_timeout);
  set("close_timeout", times.close_timeout);
  set("keep_alive_interval", times.keep_alive_interval);
  set("keep_alive_max_attempt", times.keep_alive_max_attempt);
  set("read_timeout", times.read_timeout);
  return times;
}

}  // namespace torchbridge
