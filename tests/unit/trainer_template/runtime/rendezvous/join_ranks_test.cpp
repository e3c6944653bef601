#include "trainer_template/runtime/rendezvous/join_ranks.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchbridge/errors.h>

namespace torchbridge::train {
namespace {

// What each rank throws, where a thread is a rank with this GPU: "" for none, "peer" for another
// rank's error.
std::vector<std::string> errors_of(const std::vector<NcclGpu>& gpus) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> errors(gpus.size());
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < static_cast<int>(gpus.size()); ++rank) {
    ranks.emplace_back([&, rank] {
      const int size = static_cast<int>(gpus.size());
      Launch launch;
      launch.env.layout = {
          .rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size};
      const JoinRequest request{
          .timeout = std::chrono::seconds(20), .backend = "nccl", .nccl_gpu = gpus[rank]};
      try {
        claim_rank(*store, launch, request);
        join_ranks(*store, launch, request);
      } catch (const PeerFailed&) {
        errors[rank] = "peer";
      } catch (const TrainError& error) {
        errors[rank] = error.what();
      }
    });
  }
  ranks.clear();  // waits for all
  return errors;
}

TEST(JoinRanks, RanksWithGpusOfTheirOwnJoin) {
  EXPECT_EQ(errors_of({{"0:06.0 on a", "1"},
                       {"0:07.0 on a", "1"},
                       {"0:06.0 on b", "2"},
                       {"0:06.0 on a", "3"},  // another host of the same name
                       {"", ""}}),
            std::vector<std::string>(5));
}

TEST(JoinRanks, OneLineNamesAGpuThatRanksShare) {
  for (const int sharing : {2, 5}) {
    std::vector<NcclGpu> gpus(sharing, {"0:06.0 on a", "1"});
    gpus.insert(gpus.end(), 2, {"0:07.0 on a", "1"});
    std::vector<std::string> errors = errors_of(gpus);
    EXPECT_EQ(std::ranges::count(errors, "peer"), sharing + 1);
    std::erase(errors, "peer");
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_NE(errors[0].find(" uses the GPU 0:0"), std::string::npos) << errors[0];
    EXPECT_NE(errors[0].find(" on a too, and NCCL rejects two ranks on one; give each rank"),
              std::string::npos)
        << errors[0];
  }
}

}  // namespace
}  // namespace torchbridge::train
