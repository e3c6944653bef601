// Converts the options of a process group to NCCL's configuration.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include <nccl.h>

#include "trainer_template/runtime/backends/group_options.h"

namespace torchbridge::nccl {

// Options that are not set stay undefined, so that NCCL and its environment variables determine them. The text of
// net_name lives as long as the process, because NCCL keeps the pointer.
inline ncclConfig_t config_of(const train::NcclOptions& options) {
  static std::mutex mutex;
  static std::set<std::string> names;
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
  if (!options.net_name.empty()) {
    const std::scoped_lock lock(mutex);
    config.netName = names.insert(options.net_name).first->c_str();
  }
  return config;
}

}  // namespace torchbridge::nccl
