#include "trainer_template/runtime/backends/device_backends.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

TEST(BackendSelection, ReadsNamesAndPairs) {
  const struct {
    const char *text, *device;
    std::vector<DeviceBackend> expected;
  } kCases[] = {
      {"", "cpu", {{"cpu", "gloo"}}},
      {"", "cuda", {{"cpu", "gloo"}, {"cuda", "nccl"}}},
      {"gloo", "cuda", {{"", "gloo"}}},
      {"NCCL", "cpu", {{"", "nccl"}}},
      {"cpu:gloo,cuda:nccl", "cpu", {{"cpu", "gloo"}, {"cuda", "nccl"}}},
      {"cuda:my_own2", "cpu", {{"cuda", "my_own2"}}},
  };
  for (const auto& c : kCases) {
    const auto found = parse_backends(c.text, c.device);
    ASSERT_TRUE(found) << c.text << ": " << found.error().message;
    EXPECT_EQ(*found, c.expected) << c.text;
  }
}

TEST(BackendSelection, NamesTheError) {
  const struct {
    const char *text, *device, *expected;
  } kCases[] = {
      {"", "xpu", "no default backend for the device 'xpu'"},
      {"gl oo", "cpu", "this is not a name"},
      {"cpu:gloo,nccl", "cpu", "'nccl' has no device"},
      {"cpu:gloo,", "cpu", "'' has no device"},
      {"cpu:", "cpu", "'cpu:' is not DEVICE:NAME"},
      {":gloo", "cpu", "':gloo' is not DEVICE:NAME"},
      {"cpu:gloo:1", "cpu", "is not DEVICE:NAME"},
      {"cpu:gloo,cpu:mpi", "cpu", "the device 'cpu' is named twice"},
      {"../../lib", "cpu", "this is not a name"},
  };
  for (const auto& c : kCases) {
    const auto found = parse_backends(c.text, c.device);
    ASSERT_FALSE(found) << c.text;
    EXPECT_NE(found.error().message.find(c.expected), std::string::npos) << found.error().message;
  }
}

}  // namespace
}  // namespace torchbridge::train
