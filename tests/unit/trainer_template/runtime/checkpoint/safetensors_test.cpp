#include "trainer_template/runtime/checkpoint/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

TEST(Safetensors, ReadsBackEveryType) {
  TemporaryFolder folder;
  NamedTensors tensors;
  for (at::ScalarType type : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kFloat, at::kInt,
                              at::kDouble, at::kLong}) {
    tensors.emplace_back(c10::toString(type), at::arange(1, 8).to(type));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(1.5));
  tensors.emplace_back("empty", at::zeros({0, 3}));
  tensors.emplace_back("not contiguous", at::arange(6).reshape({2, 3}).t());
  write_safetensors(real_files(), folder / "file", tensors, {{"format", "pt"}});

  const NamedTensors read = read_safetensors(folder / "file");
  EXPECT_EQ(read.size(), tensors.size());
  const std::map<std::string, at::Tensor> by_name(read.begin(), read.end());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(by_name.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(by_name.at(name).equal(tensor)) << name;
  }
}

TEST(Safetensors, NamesAFileOfAnotherFormat) {
  TemporaryFolder folder;
  folder.write("text", "hello, this is no such file");
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(folder / "none"); }),
                       "none: cannot be opened: No such file or directory"));
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(folder / "text"); }),
                       "text is not a safetensors file"));
  EXPECT_TRUE(
      contains(error_of([&] { read_safetensors(folder.path()); }), "is not a regular file"));
}

TEST(CopyTensors, NamesTheTensorThatDoesNotFitAndChangesNothing) {
  const at::Tensor weight = at::zeros({2, 3}), bias = at::zeros({2});
  const NamedTensors model = {{"weight", weight}, {"bias", bias}};
  const struct {
    NamedTensors from;
    std::string expected;
  } kCases[] = {
      {{{"weight", at::ones({2, 3})}}, "file has no 'bias', which this model has with shape [2]"},
      {{{"weight", at::ones({2, 3})}, {"bias", at::ones({3})}},
       "file has 'bias' with shape [3], this model with [2]"},
      {{{"weight", at::ones({2, 3})}, {"bias", at::ones({2}).to(at::kDouble)}},
       "'bias' of type Double, this model of Float"},
      {{{"weight", at::ones({2, 3})}, {"bias", at::ones({2})}, {"more", at::ones({1})}},
       "holds 'more', which this model"},
  };
  for (const auto& c : kCases) {
    EXPECT_TRUE(contains(error_of([&] { copy_tensors(c.from, model, "file"); }), c.expected));
    EXPECT_TRUE(weight.equal(at::zeros({2, 3})));
  }
  copy_tensors({{"bias", at::ones({2})}, {"weight", at::ones({2, 3})}}, model, "file");
  EXPECT_TRUE(weight.equal(at::ones({2, 3})));
}

}  // namespace
}  // namespace torchbridge::train
