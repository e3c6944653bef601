#include "trainer_template/runtime/checkpoint/dcp.h"

#include <nlohmann/json.hpp>

namespace torchbridge::train {

using nlohmann::json;

std::map<std::string, std::string> shard_metadata(
    const NamedTensors& state, const std::map<std::string, ElementRange>& ranges) {
  json offsets = json::object();
  bool is_sharded = false;
  for (const auto& [name, tensor] : state) {
    json& offset = offsets[name]["saved_offsets"] = json::array();
    for (std::int64_t i = 0; i < tensor.dim(); ++i) offset.push_back(0);
    const auto range = ranges.find(name.substr(0, name.rfind('.')));
    if (tensor.dim() != 1 || range == ranges.end() ||
        range->second.end - range->second.begin == range->second.total)
      continue;
    offset[0] = range->second.begin;
    is_sharded = true;
  }
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (!is_sharded) return metadata;
  metadata["DCP_SHARDING_INFO"] = offsets.dump(-1, ' ', false, json::error_handler_t::replace);
  metadata["DCP_VERSION"] = "1.0";
  return metadata;
}

}  // namespace torchbridge::train
