#include "backends/nccl/nccl_options.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace torchbridge::nccl {
namespace {

TEST(NcclOptions, WhatIsNotGivenIsLeftToNccl) {
  const ncclConfig_t config = config_of({});
  const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(config.magic, defaults.magic);
  for (int field : {config.blocking, config.cgaClusterSize, config.minCTAs, config.maxCTAs,
                    config.splitShare, config.trafficClass, config.collnetEnable, config.CTAPolicy,
                    config.shrinkShare, config.nvlsCTAs}) {
    EXPECT_EQ(field, NCCL_CONFIG_UNDEF_INT);
  }
  EXPECT_EQ(config.netName, nullptr);
}

TEST(NcclOptions, EachFieldComesToItsPlace) {
  train::NcclOptions options;
  options.blocking = 0;
  options.cga_cluster_size = 2;
  options.min_ctas = 3;
  options.max_ctas = 4;
  options.split_share = 1;
  options.traffic_class = 6;
  options.collnet_enable = 1;
  options.cta_policy = 8;
  options.shrink_share = 1;
  options.nvls_ctas = 10;
  options.net_name = "Socket";
  const ncclConfig_t config = config_of(options);
  options.net_name = "IB";
  EXPECT_EQ(config.blocking, 0);
  EXPECT_EQ(config.cgaClusterSize, 2);
  EXPECT_EQ(config.minCTAs, 3);
  EXPECT_EQ(config.maxCTAs, 4);
  EXPECT_EQ(config.splitShare, 1);
  EXPECT_EQ(config.trafficClass, 6);
  EXPECT_EQ(config.collnetEnable, 1);
  EXPECT_EQ(config.CTAPolicy, 8);
  EXPECT_EQ(config.shrinkShare, 1);
  EXPECT_EQ(config.nvlsCTAs, 10);
  EXPECT_STREQ(config.netName, "Socket");
  std::free(const_cast<char*>(config.netName));  // as NCCL may: it is not of the options
}

}  // namespace
}  // namespace torchbridge::nccl
