// The values of torchbridge run's options from their text.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/run_values/run_options.h"

namespace torchbridge {

// An error states what is wrong without the name of the option: "'x': expected a number from 0".

struct NodeRange {
  int least = 1, most = 1;
};
Result<NodeRange> parse_node_range(const std::string& text);  // "4", "2:4"

// A number from 1, auto, cpu or gpu.
Result<WorkersPerNode> parse_worker_count(const std::string& text);

// REQUIRES: it is one of kRdzvBackends, as named values of an option are.
Result<RdzvBackend> parse_rdzv_backend(const std::string& text);

Result<int> parse_whole_number(const std::string& text, int low, int high);
Result<double> parse_seconds(const std::string& text);             // finite, from 0
Result<double> parse_seconds_above_zero(const std::string& text);  // finite
Result<std::optional<int>> parse_port(const std::string& text);    // 0: none, which is a free one

// "KEY=VALUE,...", also in quotes. Of the keys that torch's rendezvous backends read, the values
// have their types.
Result<RendezvousConf> parse_rdzv_conf(const std::string& text);

Result<StreamSelection> parse_streams(const std::string& text);             // "3", "0:1,12:2"
Result<std::optional<std::set<int>>> parse_ranks(const std::string& text);  // "0,2"; empty: no set
// "a,b"; ",," is a comma of a filter.
Result<std::vector<std::string>> parse_filters(const std::string& text);
// Names of Python modules.
Result<std::vector<std::string>> parse_modules(const std::string& text);

Result<std::vector<int>> parse_signals(const std::string& text);  // "SIGTERM,INT"

}  // namespace torchbridge
