// A group whose backend serves a device alone and that is bound to none, as one over NCCL without
// device_id: its first collective is the program's.
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torchbridge/backend.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/group_options.h>
#include <torchbridge/process_group.h>

#include "tests/support/fake_device.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/backends/gloo_backend.h"
#include "trainer_template/runtime/process_group/heartbeat.h"

namespace torchbridge::train {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// gloo, for tensors of the fake device, whose memory is the host's.
class DeviceBackendOverGloo : public c10d::Backend {
 public:
  explicit DeviceBackendOverGloo(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "over_gloo"; }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors on_host = same_memory(tensors);
    return gloo_->broadcast(on_host, options);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors on_host = same_memory(tensors);
    return gloo_->allreduce(on_host, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return gloo_->barrier({}); }

 private:
  static Tensors same_memory(const Tensors& tensors) {
    Tensors on_host;
    for (const at::Tensor& one : tensors)
      on_host.push_back(at::from_blob(one.data_ptr(), one.sizes(), one.options().device(at::kCPU)));
    return on_host;
  }
  c10::intrusive_ptr<c10d::Backend> gloo_;
};

// A stranger leads rank 1 to a heartbeat of his own.
class StoreWithAnotherHeartbeat : public c10d::HashStore {
 public:
  explicit StoreWithAnotherHeartbeat(std::string server) : server_(std::move(server)) {}
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const std::vector<std::uint8_t> other(server_.begin(), server_.end());
    c10d::HashStore::set(key, key.ends_with("/heartbeat") ? other : value);
  }

 private:
  const std::string server_;
};

// What opening checkpoints throws on each rank, in a group that could be formed.
std::vector<std::string> errors_of_checkpoints(const c10::intrusive_ptr<c10d::Store>& store) {
  const TemporaryFolder folder;
  std::vector<std::string> errors(2, "the group is not formed");
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ProcessGroup group =
          init_process_group(EnvMap(), {.backend = "fake:over_gloo", .ranks = {rank, 2}}, store);
      CheckpointOptions options;
      options.folder = folder / "runs";
      try {
        errors[rank] = "";
        const Checkpoints checkpoints(group, options);
        group.leave();
      } catch (const std::exception& error) {
        errors[rank] = group.message_for(error).value_or("(another rank reports)");
      }
    });
  }
  ranks.clear();
  return errors;
}

TEST(DeviceGroup, ComparesTheHeartbeatsOfItsRanksBeforeTheFirstReport) {
  register_backend(
      "over_gloo",
      {{"fake"},
       [](const BackendRequest& request) -> MadeBackend {
         MadeBackend gloo = make_gloo(request);
         return {c10::make_intrusive<DeviceBackendOverGloo>(gloo.backend), std::move(gloo.abort)};
       },
       {}});
  EXPECT_EQ(errors_of_checkpoints(c10::make_intrusive<c10d::HashStore>()),
            (std::vector<std::string>{"", ""}));

  const auto other = Heartbeat::serve("127.0.0.1", 2, {.token = "other", .on_loss = [] {}});
  ASSERT_TRUE(other);
  const auto errors = errors_of_checkpoints(c10::make_intrusive<StoreWithAnotherHeartbeat>(
      "other 127.0.0.1 " + std::to_string((*other)->endpoint().port)));
  EXPECT_EQ(errors[1],
            "the store's key heartbeat is not what rank 0 has set: another program has changed it");
}

}  // namespace
}  // namespace torchbridge::train
