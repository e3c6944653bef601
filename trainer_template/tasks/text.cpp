// --task text: a GPT that predicts the next token of a text.
#include <ostream>
#include <string_view>

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>
#include <torchbridge/data.h>
#include <torchbridge/task.h>

#include "gpt.h"
#include "shipped_data.h"
#include "tasks.h"

using namespace torchbridge::train;

namespace {

// nanoGPT's vocabulary for GPT-2's tokens: 50257, rounded up to a multiple of 64.
constexpr std::int64_t kGpt2Vocabulary = 50304, kByteVocabulary = 256;
constexpr double kTrainFraction = 0.9;

struct TextData {
  std::unique_ptr<Dataset> train, eval;
  std::int64_t vocabulary = kByteVocabulary;
};

// `path`: a text file, whose last tenth is for evaluation, or a folder with train.bin and val.bin
// as written by the preparation scripts of nanoGPT or llm.c.
TextData open_data(const std::filesystem::path& path, std::int64_t context) {
  if (!std::filesystem::is_directory(path)) {
    if (path.extension() == ".bin" || path.extension() == ".npy")
      throw TrainError(
          path.string() +
          ": is a file of tokens: give the folder with train.bin and val.bin (--data)");
    return {
        std::make_unique<TextWindows>(path, context, TextPart{0, kTrainFraction, "training"}),
        std::make_unique<TextWindows>(path, context, TextPart{kTrainFraction, 1, "evaluation"})};
  }
  const TokenWindowsOptions windows{.length = context, .vocabulary = kGpt2Vocabulary};
  const auto tokens = [&](const char* name) {
    return std::make_unique<TokenWindows>(std::vector{path / name}, windows);
  };
  return {tokens("train.bin"), tokens("val.bin"), kGpt2Vocabulary};
}

class Text : public Task {
 public:
  explicit Text(const TaskSettings& settings)
      : shape_(parse_gpt(settings.model)), data_(open_data(settings.data, shape_.context)) {
    shape_.vocabulary = data_.vocabulary;
  }

  const Dataset& train_set() const override { return *data_.train; }
  const Dataset& eval_set() const override { return *data_.eval; }
  std::shared_ptr<Model> make_model() const override { return std::make_shared<Gpt>(shape_); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return at::cross_entropy_loss(outputs.view({-1, outputs.size(-1)}), targets.view(-1));
  }
  std::vector<Metric> metrics() const override { return {accuracy()}; }
  std::int64_t tokens_per_sample() const override { return shape_.context; }
  double flops_per_sample(const Model& model) const override {
    return static_cast<const Gpt&>(model).flops_per_token() * static_cast<double>(shape_.context);
  }
  void generate(Model& model, const Generation& generation, std::ostream& out) const override;

 private:
  GptShape shape_;
  TextData data_;
};

// Subtracts the largest logit first, so that no temperature makes the division overflow. A
// temperature that is 0 in float precision counts as 0.
at::Tensor sample_token(const at::Tensor& logits, double temperature) {
  if (static_cast<float>(temperature) == 0) return at::argmax(logits, -1, /*keepdim=*/true);
  return at::multinomial(((logits - logits.max()) / temperature).softmax(-1), 1);
}

void Text::generate(Model& model, const Generation& generation, std::ostream& out) const {
  if (shape_.vocabulary != kByteVocabulary)
    throw TrainError(
        "--generate: this program cannot convert the tokens of '.bin' files to text; train on a "
        "text file");
  const std::string_view prompt = generation.prompt;
  std::vector<std::int64_t> bytes;
  for (const char byte : prompt) bytes.push_back(static_cast<unsigned char>(byte));
  at::Tensor tokens =
      at::tensor(bytes, at::kLong).unsqueeze(0).to(model.parameters().front().device());
  out << prompt;
  for (std::int64_t i = 0; i < generation.length; ++i) {
    const auto known = std::min(tokens.size(1), shape_.context);
    const at::Tensor logits =
        model.forward(tokens.narrow(1, tokens.size(1) - known, known)).select(1, -1);
    const at::Tensor next = sample_token(logits, generation.temperature);
    out << static_cast<char>(next.item<std::int64_t>()) << std::flush;
    tokens = at::cat({tokens, next}, 1);
  }
  out << "\n";
}

}  // namespace

TaskRegistration text_task() {
  return {
      .name = "text",
      .summary = "a GPT on the bytes of a text",
      .models =
          "gpt:PRESET and KEY=VALUE,... of layers, heads, width, context and dropout; presets: " +
          gpt_presets(),
      .defaults = {{"--data", shipped_data("text/pentateuch.txt")},
                   {"--model", "gpt:tiny"},
                   {"--optimizer", "adamw"},
                   {"--lr", "0.001"},
                   {"--weight-decay", "0.1"},
                   {"--no-decay-1d", "true"},
                   {"--clip-norm", "1"},
                   {"--lr-schedule", "cosine"},
                   {"--warmup-steps", "100"},
                   {"--epochs", "1"}},
      .check_model = [](const std::string& model) { parse_gpt(model); },
      .identity_of_model =
          [](const std::string& model) {
            return "heads=" + std::to_string(parse_gpt(model).heads);
          },
      .open = [](const TaskSettings& settings) { return std::make_unique<Text>(settings); },
      .generates = true};
}
