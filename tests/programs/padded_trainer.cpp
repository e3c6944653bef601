// The trainer's page with a task of padded sequences: a model of the next token, of lines of
// numbers. The targets behind the end of a line, and behind the last token of each, are -100.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randn.h>
#include <torchbridge/data.h>
#include <torchbridge/task.h>

#include "trainer_template/tasks.h"

using namespace torchbridge::train;

namespace {

constexpr std::int64_t kTokens = 16, kWidth = 8, kPadding = -100;

class Lines : public Dataset {
 public:
  explicit Lines(const std::string& file) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      std::istringstream numbers(line);
      lines_.emplace_back(std::istream_iterator<std::int64_t>(numbers),
                          std::istream_iterator<std::int64_t>());
    }
  }
  std::int64_t size() const override { return std::ssize(lines_); }
  Batch collate(std::span<const std::int64_t> indices) const override {
    std::size_t longest = 0;
    for (const std::int64_t index : indices) longest = std::max(longest, lines_[index].size());
    const std::vector<std::int64_t> sizes = {std::ssize(indices),
                                             static_cast<std::int64_t>(longest)};
    Batch batch{.inputs = batch_tensor(sizes, at::kLong).zero_(),
                .targets = batch_tensor(sizes, at::kLong).fill_(kPadding)};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::vector<std::int64_t>& line = lines_[indices[i]];
      auto* const row = batch.inputs.mutable_data_ptr<std::int64_t>() + i * longest;
      auto* const targets = batch.targets.mutable_data_ptr<std::int64_t>() + i * longest;
      std::ranges::copy(line, row);
      std::copy(line.begin() + 1, line.end(), targets);
    }
    return batch;
  }

 private:
  std::vector<std::vector<std::int64_t>> lines_;
};

class NextToken : public Model {
 public:
  NextToken() {
    tokens_ = register_parameter("tokens", at::randn({kTokens, kWidth}));
    scores_ = register_module("scores", Linear(kWidth, kTokens));
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    return scores_->forward(at::embedding(tokens_, inputs).tanh());
  }

 private:
  at::Tensor tokens_;
  Linear scores_{nullptr};
};

class Padded : public Task {
 public:
  explicit Padded(const TaskSettings& settings) : lines_(settings.data) {}
  const Dataset& train_set() const override { return lines_; }
  const Dataset& eval_set() const override { return lines_; }
  std::shared_ptr<Model> make_model() const override { return std::make_shared<NextToken>(); }
  // Two, of which the sum is that of cross_entropy with this label smoothing.
  std::vector<Loss> losses() const override {
    const auto target = [](const at::Tensor& outputs, const at::Tensor& targets) {
      return at::cross_entropy_loss(outputs.flatten(0, 1), targets.flatten()) * 0.9;
    };
    const auto smooth = [](const at::Tensor& outputs, const at::Tensor& targets) {
      const at::Tensor mean = -outputs.log_softmax(-1).mean(-1);
      const at::Tensor counts = targets.ne(kPadding).to(at::kFloat);
      return (mean * counts).sum() / counts.sum() * 0.1;
    };
    return {{"target", target}, {"smooth", smooth}};
  }
  BatchWeight weight() const override {
    return [](const Batch& batch) { return batch.targets.ne(kPadding).sum(); };
  }
  std::vector<Metric> metrics() const override { return {accuracy()}; }

 private:
  Lines lines_;
};

}  // namespace

std::span<const TaskRegistration> registered_tasks() {
  static const TaskRegistration kTasks[] = {
      {.name = "padded",
       .summary = "the next token of lines of numbers",
       .models = "one",
       .defaults = {{"--model", "one"}},
       .check_model = [](const std::string&) {},
       .open = [](const TaskSettings& settings) { return std::make_unique<Padded>(settings); }}};
  return kTasks;
}
