// What a program asks of NCCL, as NCCL's own configuration.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include <nccl.h>

#include "trainer_template/runtime/backends/group_options.h"

namespace torchbridge::nccl {

// What is not given stays undefined, which leaves it to NCCL and its environment variables. The text of net_name lives
// as long as the process: NCCL keeps the pointer.
inline ncclConfig_t config_of(const train::NcclOptions& options) {
  static std::mutex mutex;
  static std::set<std::string> names;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const auto take = [](int& field, const std::optional<int>& value) {
    if (value) field = *value;
  };
  take(config.blocking, options.blocking);
  take(config.cgaClusterSize, options.cga_cluster_size);
  take(config.minCTAs, options.min_ctas);
  take(config.maxCTAs, options.max_ctas);
  take(config.splitShare, options.split_share);
  take(config.trafficClass, options.traffic_class);
  take(config.collnetEnable, options.collnet_enable);
  take(config.CTAPolicy, options.cta_policy);
  take(config.shrinkShare, options.shrink_share);
  take(config.nvlsCTAs, options.nvls_ctas);
  if (!options.net_name.empty()) {
    const std::scoped_lock lock(mutex);
    config.netName = names.insert(options.net_name).first->c_str();
  }
  return config;
}

}  // namespace torchbridge::nccl
