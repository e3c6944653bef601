#include "gpt.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>
#include <torchbridge/task.h>

using torchbridge::train::Linear;
using torchbridge::train::TrainError;

namespace {

struct Preset {
  const char* name;
  GptShape shape;
};

// tiny and small: nanoGPT's README, for a CPU and for one GPU; the others are GPT-2's.
const Preset kPresets[] = {
    {"tiny", {.layers = 4, .heads = 4, .width = 128, .context = 64}},
    {"small", {.layers = 6, .heads = 6, .width = 384, .context = 256}},
    {"gpt2", {.layers = 12, .heads = 12, .width = 768, .context = 1024}},
    {"gpt2-medium", {.layers = 24, .heads = 16, .width = 1024, .context = 1024}},
    {"gpt2-large", {.layers = 36, .heads = 20, .width = 1280, .context = 1024}},
    {"gpt2-xl", {.layers = 48, .heads = 25, .width = 1600, .context = 1024}},
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, separator);) words.push_back(word);
  return words;
}

void set(GptShape& shape, const std::string& key, const std::string& value,
         const std::string& model) {
  const std::map<std::string, std::int64_t*> sizes = {{"layers", &shape.layers},
                                                      {"heads", &shape.heads},
                                                      {"width", &shape.width},
                                                      {"context", &shape.context}};
  const auto size = sizes.find(key);
  if (size != sizes.end()) {
    const auto number = torchbridge::parse_integer(value, 1, 1'000'000);
    if (!number)
      throw TrainError("'" + model + "': " + key + "=" + value +
                       ": expected a number from 1 to 1000000");
    *size->second = *number;
  } else if (key == "dropout") {
    char* end = nullptr;
    shape.dropout = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !(shape.dropout >= 0 && shape.dropout < 1)) {
      throw TrainError("'" + model + "': dropout=" + value +
                       ": expected a number from 0 to below 1");
    }
  } else {
    std::vector<std::string> names = {"dropout"};
    for (const auto& entry : sizes) names.push_back(entry.first);
    for (const Preset& preset : kPresets) names.emplace_back(preset.name);
    const std::string what = "'" + model + "': ";
    if (std::find(names.begin(), names.end(), key) != names.end())
      throw TrainError(what + "the preset '" + key + "' must come first, without a value");
    const std::string nearest = torchbridge::did_you_mean(key, names);
    throw TrainError(what + "unknown key '" + key + "'" + (nearest.empty() ? "." : nearest) +
                     " Expected one of " + gpt_presets() +
                     ", and layers=, heads=, width=, context= or dropout=");
  }
}

// A layer of the transformer. Names as in nanoGPT: ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc,
// mlp.c_proj.
class Attention : public torch::nn::Module {
 public:
  explicit Attention(const GptShape& shape) : heads_(shape.heads), dropout_(shape.dropout) {
    c_attn_ = register_module("c_attn", Linear(shape.width, 3 * shape.width));
    c_proj_ = register_module("c_proj", Linear(shape.width, shape.width));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto samples = x.size(0), tokens = x.size(1), width = x.size(2);
    const auto parts = c_attn_->forward(x).split(width, 2);
    const auto by_head = [&](const at::Tensor& part) {
      return part.view({samples, tokens, heads_, width / heads_}).transpose(1, 2);
    };
    // In Python's order: query, key, value are the parts 0, 1, 2.
    const at::Tensor query = by_head(parts[0]), key = by_head(parts[1]), value = by_head(parts[2]);
    const at::Tensor mixed = at::scaled_dot_product_attention(
        query, key, value, {}, is_training() ? dropout_ : 0.0, /*is_causal=*/true);
    return at::dropout(
        c_proj_->forward(mixed.transpose(1, 2).contiguous().view({samples, tokens, width})),
        dropout_, is_training());
  }

 private:
  std::int64_t heads_;
  double dropout_;
  Linear c_attn_{nullptr}, c_proj_{nullptr};
};

class FeedForward : public torch::nn::Module {
 public:
  explicit FeedForward(const GptShape& shape) : dropout_(shape.dropout) {
    c_fc_ = register_module("c_fc", Linear(shape.width, 4 * shape.width));
    c_proj_ = register_module("c_proj", Linear(4 * shape.width, shape.width));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(c_proj_->forward(at::gelu(c_fc_->forward(x))), dropout_, is_training());
  }

 private:
  double dropout_;
  Linear c_fc_{nullptr}, c_proj_{nullptr};
};

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

class Block : public torch::nn::Module {
 public:
  explicit Block(const GptShape& shape) {
    ln_1_ = register_module("ln_1", layer_norm(shape.width));
    attention_ = register_module("attn", std::make_shared<Attention>(shape));
    ln_2_ = register_module("ln_2", layer_norm(shape.width));
    feed_forward_ = register_module("mlp", std::make_shared<FeedForward>(shape));
  }
  at::Tensor forward(const at::Tensor& inputs) {
    const at::Tensor x = inputs + attention_->forward(ln_1_->forward(inputs));
    return x + feed_forward_->forward(ln_2_->forward(x));
  }

 private:
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<FeedForward> feed_forward_;
};

}  // namespace

std::string gpt_presets() {
  std::string names;
  for (const Preset& preset : kPresets)
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

GptShape parse_gpt(const std::string& model) {
  constexpr std::string_view kPrefix = "gpt:";
  if (!model.starts_with(kPrefix) || model.size() == kPrefix.size()) {
    throw TrainError(
        "'" + model +
        "': expected gpt:PRESET, gpt:KEY=VALUE,... or gpt:PRESET,KEY=VALUE,...; presets are " +
        gpt_presets());
  }
  GptShape shape;
  const auto words = split(model.substr(kPrefix.size()), ',');
  std::set<std::string> keys;
  for (const std::string& word : words) {
    const auto preset = std::ranges::find(kPresets, word, &Preset::name);
    const auto equals = word.find('=');
    if (preset != std::end(kPresets) && &word == &words.front()) {
      shape = preset->shape;
    } else {
      if (!keys.insert(word.substr(0, equals)).second)
        throw TrainError("'" + model + "': '" + word.substr(0, equals) + "' is given twice");
      set(shape, word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1),
          model);
    }
  }
  if (shape.width % shape.heads != 0) {
    throw TrainError("'" + model + "': width " + std::to_string(shape.width) +
                     " is not a multiple of the " + std::to_string(shape.heads) + " heads");
  }
  return shape;
}

Gpt::Gpt(const GptShape& shape) : shape_(shape) {
  tokens_ = register_module("wte", torch::nn::Embedding(shape.vocabulary, shape.width));
  positions_ = register_module("wpe", torch::nn::Embedding(shape.context, shape.width));
  register_module("h", blocks_);
  for (std::int64_t i = 0; i < shape.layers; ++i)
    blocks_->push_back(std::make_shared<Block>(shape));
  norm_ = register_module("ln_f", layer_norm(shape.width));
  initialise();
}

void Gpt::initialise() {
  for (const auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    if (name.ends_with("bias")) {
      torch::nn::init::zeros_(parameter.value());
    } else if (parameter.value().dim() > 1) {
      const double branches = name.ends_with("c_proj.weight")
                                  ? std::sqrt(2.0 * static_cast<double>(shape_.layers))
                                  : 1.0;
      torch::nn::init::normal_(parameter.value(), 0.0, 0.02 / branches);
    }
  }
}

at::Tensor Gpt::forward(const at::Tensor& inputs) {
  TORCH_CHECK(inputs.size(1) <= shape_.context, "a sample has ", inputs.size(1),
              " tokens, the context is ", shape_.context);
  const at::Tensor positions = at::arange(inputs.size(1), inputs.options());
  at::Tensor x = at::dropout(tokens_->forward(inputs) + positions_->forward(positions),
                             shape_.dropout, is_training());
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
  return at::linear(norm_->forward(x), tokens_->weight);
}

double Gpt::flops_per_token() const {
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : this->parameters()) parameters += parameter.numel();
  parameters -= positions_->weight.numel();
  return 6.0 * static_cast<double>(parameters) +
         12.0 * static_cast<double>(shape_.layers * shape_.width * shape_.context);
}
