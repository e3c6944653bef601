#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/sync_batch_norm.h>

#include "tests/support/alone.h"
#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

struct Nested : torch::nn::Module {
  Nested() {
    outer->push_back(torch::nn::BatchNorm1d(3));
    inner->push_back(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(3).affine(false)));
    register_module("outer", outer);
    register_module("inner", inner);
    own = register_module("own", SyncBatchNorm(3));
  }
  torch::nn::Sequential outer, inner;
  SyncBatchNorm own{nullptr};
};

TEST(SyncBatchNorm, ReplacesEachBatchNormInASequential) {
  Nested model;
  const ModelTensors before = tensors_of(model);
  const at::Tensor input = at::rand({4, 3});
  const at::Tensor expected = model.outer->forward(input);
  model.eval();
  EXPECT_EQ(convert_sync_batch_norm(model, alone()), 3);
  EXPECT_FALSE(model.outer[0]->is_training());
  const ModelTensors after = tensors_of(model);
  ASSERT_EQ(after.parameters.size(), before.parameters.size());
  for (std::size_t i = 0; i < after.parameters.size(); ++i) {
    EXPECT_EQ(after.parameters[i].first, before.parameters[i].first);
    EXPECT_TRUE(after.parameters[i].second.is_same(before.parameters[i].second))
        << after.parameters[i].first;
  }
  ASSERT_EQ(after.buffers.size(), before.buffers.size());
  EXPECT_TRUE(after.has_sync_batch_norm);
  model.train();
  EXPECT_TRUE(model.outer->forward(input).equal(expected));
  EXPECT_EQ(model.own->group, &alone());
}

struct Member : torch::nn::Module {
  Member() { norm = register_module("norm", torch::nn::BatchNorm2d(3)); }
  torch::nn::BatchNorm2d norm{nullptr};
};

TEST(SyncBatchNorm, NamesABatchNormThatItCannotReplace) {
  Member model;
  EXPECT_TRUE(contains(error_of([&] { convert_sync_batch_norm(model, alone()); }),
                       "'norm' is in no torch::nn::Sequential"));
}

TEST(SyncBatchNorm, RejectsAnInputOfOtherChannels) {
  EXPECT_TRUE(contains(error_of([&] {
                         SyncBatchNorm(3)->forward(at::ones({2, 4}));
                       }),
                       "(N, 3, ...), not [2, 4]"));
}

}  // namespace
}  // namespace torchbridge::train
