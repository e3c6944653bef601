// Converts the options of a process group to NCCL's configuration.
#pragma once

#include <cstring>

#include <nccl.h>
#include <torchbridge/group_options.h>

namespace torchbridge::nccl {

// Options that are not set stay undefined, so that NCCL and its environment variables determine
// them. netName is of strdup(), as Python's: NCCL keeps the pointer, and some of its versions free
// it with the communicator.
inline ncclConfig_t config_of(const train::NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const auto set = [](int& field, const std::optional<int>& value) {
    if (value) field = *value;
  };
  set(config.blocking, options.blocking);
  set(config.cgaClusterSize, options.cga_cluster_size);
  set(config.minCTAs, options.min_ctas);
  set(config.maxCTAs, options.max_ctas);
  set(config.splitShare, options.split_share);
  set(config.trafficClass, options.traffic_class);
  set(config.collnetEnable, options.collnet_enable);
  set(config.CTAPolicy, options.cta_policy);
  set(config.shrinkShare, options.shrink_share);
  set(config.nvlsCTAs, options.nvls_ctas);
  if (!options.net_name.empty()) config.netName = strdup(options.net_name.c_str());
  return config;
}

}  // namespace torchbridge::nccl
