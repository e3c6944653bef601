#include "backends/nccl/nccl_versions.h"

#include <gtest/gtest.h>

#include "backends/nccl/stalled_counter.h"

namespace torchbridge::nccl {
namespace {

TEST(NcclVersions, ALibraryThatIsAsNewAsItsHeaderFits) {
  EXPECT_EQ(code_of(0x2001c0009), 22809);  // as torch::cuda::nccl::version() of 2.11
  const std::string of_another_layout =
      "it was built with the headers of NCCL 2.27.3, but libtorch with those of 2.28.9, where";
  const std::string too_old = "libnccl.so.2 is NCCL 2.21.5, but libtorch was built for 2.28.9: ";
  const struct {
    NcclVersions found;
    std::string error;
  } kCases[] = {
      {{22809, 22809, 22809}, ""},
      {{22809, 22809, 22907}, ""},
      {{22809, 22809, 22105}, too_old},
      {{22809, 22809, 30000}, "libnccl.so.2 is NCCL 3.0.0, but libtorch was built for 2.28.9: "},
      {{22703, 22809, 22809}, of_another_layout},
      {{22809, 22809, 0}, ""},
      {{22703, 22809, 0}, of_another_layout},
  };
  for (const auto& c : kCases) {
    const auto error = version_error(c.found);
    EXPECT_EQ(error.has_value(), !c.error.empty()) << c.error;
    if (error) {
      EXPECT_TRUE(error->starts_with(c.error)) << *error;
    }
  }
}

TEST(StalledCounter, IsStalledAfterTheLimitUnlessNobodyAskedMeanwhile) {
  using std::chrono::seconds;
  StalledCounter counter(seconds(10));
  const auto begin = StalledCounter::Clock::time_point(seconds(1000));
  const auto at = [&](int second, std::uint64_t value) {
    return counter.is_stalled(value, begin + seconds(second));
  };
  for (int second = 0; second <= 10; second += 5) EXPECT_FALSE(at(second, 7)) << second;
  EXPECT_TRUE(at(11, 7));
  EXPECT_FALSE(at(12, 8));  // it changes again
  for (int second = 12; second <= 20; second += 4) EXPECT_FALSE(at(second, 8)) << second;
  EXPECT_FALSE(at(100, 8));  // as after a stop of the process
  EXPECT_FALSE(at(105, 8));
  EXPECT_FALSE(at(110, 8));
  EXPECT_TRUE(at(111, 8));
}

TEST(NcclGpus, AreComparedAsItsVersionCompares) {
  const train::CudaGpu gpu{.name = {}, .capability = {}, .bus_id = "bus", .uuid = "uuid"};
  EXPECT_EQ(compared_gpu(22907, gpu, ""), "bus");
  EXPECT_EQ(compared_gpu(22907, gpu, "1"), "bus");
  EXPECT_EQ(compared_gpu(23007, gpu, ""), "uuid");
  EXPECT_EQ(compared_gpu(23007, gpu, "0"), "uuid");
  EXPECT_EQ(compared_gpu(23007, gpu, "1"), "");
}

}  // namespace
}  // namespace torchbridge::nccl
