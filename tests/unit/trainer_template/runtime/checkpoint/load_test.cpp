// Resuming from a folder with damaged checkpoints, and weights with two names.
#include "trainer_template/runtime/checkpoint/load.h"

#include <functional>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/checkpoint.h>

#include "tests/support/alone.h"
#include "tests/support/growth.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint/dcp.h"
#include "trainer_template/runtime/checkpoint/generators.h"
#include "trainer_template/runtime/checkpoint/safetensors.h"
#include "trainer_template/runtime/checkpoint/tied_weights.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/verify.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

// A model whose value is the step.
class Reading : public testing::Test {
 protected:
  void save(std::int64_t step, const fs::path& root) {
    CheckpointOptions options;
    options.folder = root;
    options.shown = {{"lr", "0.1"}};
    Checkpoints checkpoints(alone(), options);
    weight_.detach().fill_(static_cast<double>(step));
    weight_.mutable_grad() = at::ones({2, 3});
    optimizer_->step(0.0);
    checkpoints.save({.step = step, .buckets = {{0}}, .parts = {{"plateau.best", 0.5}}}, model_,
                     *optimizer_);
    checkpoints.finish();
  }
  // The step from which a run resumes, and its messages.
  std::int64_t resume(std::string& said) {
    testing::internal::CaptureStderr();
    CheckpointOptions options;
    options.folder = root_;
    std::optional<ResumedRun> resumed;
    {
      Checkpoints checkpoints(alone(), options);
      resumed = checkpoints.resume(model_, *optimizer_);
    }
    said = testing::internal::GetCapturedStderr();
    return resumed ? resumed->state.step : -1;
  }
  // Removes the file from the manifest of step 2.
  void forget(const std::string& name) {
    auto manifest = *read_manifest(second_);
    std::erase_if(manifest.files, [&](const FileRecord& file) { return file.name == name; });
    folder_.write("runs/step-00000002/manifest.json", to_json(manifest));
  }
  void start_with_two() {
    fs::remove_all(root_);
    optimizer_ = make_sgd(model_.parameters, {.momentum = 0.9});
    save(1, root_);
    save(2, root_);
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_ / "runs", second_ = root_ / step_folder(2);
  at::Tensor weight_ = at::ones({2, 3}).set_requires_grad(true);
  ModelTensors model_{
      .parameters = {{"weight", weight_}}, .buffers = {}, .aliases = {{"head.weight", "weight"}}};
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(Reading, SelectsTheNewestValidOneAndReportsTheOthers) {
  const struct {
    const char* what;
    std::function<void()> damage;
    std::string expected;
  } kCases[] = {
      {"cut off", [&] { fs::resize_file(second_ / kModelFile, 20); },
       "step-00000002: model.safetensors has 20 bytes"},
      {"missing", [&] { fs::remove(second_ / rank_file(0)); },
       "step-00000002: rank-00000.safetensors is missing"},
      {"swapped",
       [&] {
         fs::copy_file(root_ / step_folder(1) / kModelFile, second_ / kModelFile,
                       fs::copy_options::overwrite_existing);
       },
       "step-00000002: model.safetensors is damaged: its checksum differs (tensor 'weight')"},
      {"another checkpoint's manifest",
       [&] {
         fs::copy_file(root_ / step_folder(1) / kManifestFile, second_ / kManifestFile,
                       fs::copy_options::overwrite_existing);
       },
       "step-00000002: manifest.json belongs to another checkpoint, of step 1"},
      {"a link instead of the folder",
       [&] {
         fs::rename(second_, folder_ / "elsewhere");
         fs::create_directory_symlink(folder_ / "elsewhere", second_);
       },
       "step-00000002: it is not a folder"},
      {"a manifest without the weights", [&] { forget(kModelFile); },
       "step-00000002: manifest.json does not list model.safetensors"},
      {"a manifest without a rank's file", [&] { forget(rank_file(0)); },
       "step-00000002: manifest.json does not list rank-00000.safetensors"},
      {"a manifest without state", [&] { forget(optimizer_file(0, 1)); },
       "step-00000002: manifest.json does not list a file of the optimizer's state"},
      {"a file instead of the manifest's",
       [&] { folder_.write("runs/step-00000002/manifest.json", "{}"); },
       "step-00000002: manifest.json is invalid"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    start_with_two();
    c.damage();
    std::string said;
    EXPECT_EQ(resume(said), 1);
    EXPECT_EQ(weight_.detach()[0][0].item<double>(), 1);
    EXPECT_TRUE(contains(said, c.expected));
  }
}

// The checksums are right, but the tensors are not those of this model.
TEST_F(Reading, RejectsTensorsOfAnotherTypeShapeOrName) {
  const auto saved_as = [&](const std::string& name, const at::Tensor& tensor) {
    fs::remove_all(root_);
    ModelTensors other{.parameters = {{name, tensor}}, .buffers = {}};
    const auto optimizer = make_sgd(other.parameters, {});
    CheckpointOptions options;
    options.folder = root_;
    Checkpoints checkpoints(alone(), options);
    checkpoints.save({.step = 1}, other, *optimizer);
    checkpoints.finish();
  };
  optimizer_ = make_sgd(model_.parameters, {});
  const struct {
    const char* name;
    at::Tensor tensor;
    std::string expected;
  } kCases[] = {
      {"weight", at::ones({2, 3}).to(at::kDouble), "'weight' of type Double, this model of Float"},
      {"weight", at::ones({3, 2}), "'weight' with shape [3, 2], this model with [2, 3]"},
      {"weight", at::ones({6}), "'weight' with shape [6], this model with [2, 3]"},
      {"other", at::ones({2, 3}), "has no 'weight'"}};
  for (const auto& c : kCases) {
    saved_as(c.name, c.tensor);
    std::string said;
    EXPECT_TRUE(contains(error_of([&] { resume(said); }), c.expected));
    testing::internal::GetCapturedStderr();
  }
}

TEST_F(Reading, EqualStateGivesEqualFiles) {
  start_with_two();
  optimizer_ = make_sgd(model_.parameters, {.momentum = 0.9});
  save(2, folder_ / "first");
  optimizer_ = make_sgd(model_.parameters, {.momentum = 0.9});
  save(2, folder_ / "second");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "first/step-00000002")) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(folder_.read("first/step-00000002/" + name),
              folder_.read("second/step-00000002/" + name))
        << name;
    ++files;
  }
  EXPECT_EQ(files, 5);  // weights, optimizer, generators, manifest, DONE
}

TEST_F(Reading, TheManifestRecordsTheOptimizer) {
  start_with_two();
  const auto manifest = read_manifest(second_);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->optimizer, optimizer_->record());
  ASSERT_EQ(manifest->optimizer.groups.size(), 1u);
  EXPECT_EQ(manifest->optimizer.kind, "sgd");
  EXPECT_EQ(manifest->optimizer.groups[0].parameters, std::vector<std::string>{"weight"});
  EXPECT_EQ(manifest->optimizer.groups[0].options.at("momentum"), 0.9);
}

TEST_F(Reading, AWeightOfTwoNamesIsSavedOnce) {
  start_with_two();
  const NamedTensors read = read_safetensors(second_ / kModelFile);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].first, "head.weight");
  EXPECT_EQ(read[0].second.const_data_ptr(), read[1].second.const_data_ptr());
  EXPECT_LT(fs::file_size(second_ / kModelFile), 300u);
  std::string said;
  EXPECT_EQ(resume(said), 2);
}

TEST(TiedWeights, AreLoadedUnderAnyOfTheirNames) {
  const at::Tensor value = at::arange(6).to(at::kFloat), other = at::ones({2});
  const ModelTensors tied{.parameters = {{"wte", at::zeros({6})}, {"bias", at::zeros({2})}},
                          .buffers = {},
                          .aliases = {{"head", "wte"}, {"third", "wte"}}};
  const ModelTensors once{.parameters = {{"wte", at::zeros({6})}, {"bias", at::zeros({2})}},
                          .buffers = {}};
  const ModelTensors apart{
      .parameters = {{"wte", at::zeros({6})}, {"head", at::zeros({6})}, {"bias", at::zeros({2})}},
      .buffers = {}};
  const struct {
    const char* what;
    const ModelTensors& model;
    NamedTensors file;
  } kCases[] = {
      {"both names, one memory", tied, {{"wte", value}, {"head", value}, {"bias", other}}},
      {"both names, equal copies",
       tied,
       {{"head", value.clone()}, {"wte", value}, {"bias", other}}},
      {"the first name", tied, {{"wte", value}, {"bias", other}}},
      {"the other name", tied, {{"head", value}, {"bias", other}}},
      {"two other names", tied, {{"third", value}, {"head", value}, {"bias", other}}},
      {"both, and the model knows one", once, {{"wte", value}, {"head", value}, {"bias", other}}},
      {"both, and the model has them apart",
       apart,
       {{"wte", value}, {"head", value}, {"bias", other}}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    for (const auto& [name, tensor] : c.model.parameters) tensor.zero_();
    copy_tensors(without_aliases(c.file, c.model, "file"), c.model.all(), "file");
    for (const auto& [name, tensor] : c.model.parameters)
      EXPECT_TRUE(tensor.equal(name == "bias" ? other : value)) << name;
  }
  const auto error = [&](const ModelTensors& model, const NamedTensors& file) {
    return error_of(
        [&] { copy_tensors(without_aliases(file, model, "file"), model.all(), "file"); });
  };
  EXPECT_TRUE(contains(error(tied, {{"wte", value}, {"head", value + 1}, {"bias", other}}),
                       "has different values for 'head' and 'wte'"));
  EXPECT_TRUE(contains(error(tied, {{"third", value}, {"head", value + 1}, {"bias", other}}),
                       "has different values for 'head' and 'third'"));
  EXPECT_TRUE(contains(error(once, {{"wte", value}, {"head", value.clone()}, {"bias", other}}),
                       "holds 'head', which this model does not have"));
  EXPECT_TRUE(contains(error(tied, {{"bias", other}}), "has no 'wte'"));
}

// As nanoGPT's state_dict in a file of safetensors, whose writer takes no tensors that share
// memory. The judge is its load_state_dict(), where both names are one parameter.
TEST(TiedWeights, MayBeCopiesUnderANameThatTheModelDoesNotHave) {
  const at::Tensor table = at::arange(200).to(at::kFloat).view({20, 10}),
                   into = at::zeros({20, 10});
  const ModelTensors gpt{.parameters = {{"wte.weight", into}}, .buffers = {}};
  const auto load = [&](const at::Tensor& head) {
    into.zero_();
    const NamedTensors file = {{"lm_head.weight", head}, {"wte.weight", table}};
    copy_tensors(without_aliases(file, gpt, "file"), gpt.all(), "file");
  };
  load(table.clone());
  EXPECT_TRUE(into.equal(table));
  at::Tensor other = table.clone();
  other[19][9] = -1;  // behind the bytes by which copies are found
  const std::string unknown = "holds 'lm_head.weight', which this model does not have";
  for (const at::Tensor& head : {other, table.to(at::kDouble), table.view({10, 20}).clone()})
    EXPECT_TRUE(contains(error_of([&] { load(head); }), unknown));
  table.zero_();  // as an adapter's of another model
  EXPECT_TRUE(contains(error_of([&] { load(table.clone()); }), unknown));
}

TEST(FittedNames, HaveNoPrefixesThatTheModelDoesNotKnow) {
  using Names = std::vector<std::string>;
  const at::Tensor value = at::zeros({1});
  const ModelTensors gpt{
      .parameters = {{"wte", value}, {"h.0", value}}, .buffers = {}, .aliases = {{"head", "wte"}}};
  const ModelTensors wrapped{.parameters = {{"module.a", value}, {"module.b", value}},
                             .buffers = {}};
  const struct {
    const ModelTensors& model;
    Names file, expected;
  } kCases[] = {
      {gpt, {"wte", "h.0"}, {"wte", "h.0"}},
      {gpt, {"module.wte", "module.h.0"}, {"wte", "h.0"}},
      {gpt, {"module._orig_mod.wte", "module._orig_mod.h.0"}, {"wte", "h.0"}},
      {gpt,
       {"_orig_mod.transformer.wte", "_orig_mod.transformer.h.0", "_orig_mod.head"},
       {"wte", "h.0", "head"}},
      {gpt, {"transformer.wte", "transformer.h.0", "lm_head"}, {"wte", "h.0", "lm_head"}},
      {gpt, {"model.wte", "model.h.0"}, {"wte", "h.0"}},
      {gpt, {"model._orig_mod.wte", "model._orig_mod.module.h.0"}, {"wte", "h.0"}},
      {gpt, {"model.x", "module.y"}, {"model.x", "module.y"}},
      {gpt, {"model.wte", "wte"}, {"model.wte", "wte"}},
      {wrapped, {"module.a", "module.b"}, {"module.a", "module.b"}},
      {gpt, {"ema.wte", "ema.h.0", "distance", "other.wte"}, {"wte", "h.0"}},
      {gpt,
       {"ema.wte", "ema.h.0", "swa.wte", "swa.h.0"},
       {"ema.wte", "ema.h.0", "swa.wte", "swa.h.0"}},
  };
  for (const auto& c : kCases) {
    NamedTensors file;
    for (const std::string& name : c.file) file.emplace_back(name, value);
    Names names;
    for (const auto& [name, tensor] : fitted_names(file, c.model)) names.push_back(name);
    EXPECT_EQ(names, c.expected) << c.file.front();
  }
}

// The judge is PyTorch: bn.load_state_dict() of a dict without _metadata takes such a file.
TEST(InitFrom, TakesBatchNormalisationThatCountsNoBatches) {
  TemporaryFolder folder;
  const at::Tensor mean = at::zeros({2}), count = at::full({}, 7, at::kLong);
  const ModelTensors model{
      .parameters = {}, .buffers = {{"bn.running_mean", mean}, {"bn.num_batches_tracked", count}}};
  write_safetensors(real_files(), folder / "old.safetensors", {{"bn.running_mean", at::ones({2})}},
                    {});
  init_from(folder / "old.safetensors", model, alone());
  EXPECT_TRUE(mean.equal(at::ones({2})));
  EXPECT_EQ(count.item<std::int64_t>(), 0);
  write_safetensors(real_files(), folder / "none.safetensors",
                    {{"bn.num_batches_tracked", at::full({}, 3, at::kLong)}}, {});
  EXPECT_TRUE(contains(error_of([&] { init_from(folder / "none.safetensors", model, alone()); }),
                       "has no 'bn.running_mean'"));
}

// Such as a file of another model.
TEST(TiedWeights, AreFoundInLinearTimeAmongUnknownNames) {
  const ModelTensors model{.parameters = {{"wte", at::zeros({6})}}, .buffers = {}};
  const auto find = [&](int tensors) {
    NamedTensors file;
    for (int i = 0; i < tensors; ++i)
      file.emplace_back("layers." + std::to_string(i), at::empty({i % 2}));
    EXPECT_EQ(std::ssize(without_aliases(file, model, "file")), tensors);
  };
  EXPECT_LT(growth(5'000, find), kLinearGrowth);
}

TEST(ShardMetadata, HasTheOffsetsOfThePieces) {
  const NamedTensors state = {
      {"a.exp_avg", at::zeros({3})}, {"a.step", at::zeros({})}, {"b.exp_avg", at::zeros({2, 2})}};
  const auto whole = shard_metadata(state, {{"a", {0, 3, 3}}, {"b", {0, 4, 4}}});
  EXPECT_EQ(whole, (std::map<std::string, std::string>{{"format", "pt"}}));
  const auto pieces = shard_metadata(state, {{"a", {5, 8, 10}}, {"b", {0, 4, 4}}});
  EXPECT_EQ(
      pieces.at("DCP_SHARDING_INFO"),
      R"({"a.exp_avg":{"saved_offsets":[5]},"a.step":{"saved_offsets":[]},"b.exp_avg":{"saved_offsets":[0,0]}})");
}

TEST(Generators, AreSavedAndRestored) {
  const c10::Device cpu(c10::kCPU);
  at::manual_seed(3);
  const NamedTensors states = generator_states(cpu);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].first, "cpu_generator");
  const at::Tensor state = states[0].second.clone();
  at::manual_seed(4);
  EXPECT_FALSE(generator_states(cpu)[0].second.equal(state));
  restore_generators({{"cuda_generator", at::zeros({16}).to(at::kByte)}, {"cpu_generator", state}},
                     cpu);
  EXPECT_TRUE(generator_states(cpu)[0].second.equal(state));
}

}  // namespace
}  // namespace torchbridge::train
