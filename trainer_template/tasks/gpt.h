// A decoder-only transformer, GPT-2's architecture (Radford et al., 2019) with the names and sizes
// of nanoGPT (https://github.com/karpathy/nanoGPT, model.py). One difference: the output layer is
// the token embedding itself.
#pragma once

#include <cstdint>
#include <string>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torchbridge/task.h>

struct GptShape {
  std::int64_t layers = 4, heads = 4, width = 128, context = 64;
  std::int64_t vocabulary = 256;
  double dropout = 0;
};

// "gpt:tiny", "gpt:tiny,context=128,dropout=0.1", "gpt:layers=2,heads=2,width=64". Throws
// TrainError, which names the invalid part. The vocabulary is set from the data.
GptShape parse_gpt(const std::string& model);
// "tiny, small, gpt2 ..." for --help.
std::string gpt_presets();

// inputs: [samples, tokens] int64 with at most shape.context tokens; outputs: [samples, tokens,
// vocabulary], logits of the next token.
class Gpt : public torchbridge::train::Model {
 public:
  // Weights from the default generator: normal with deviation 0.02, divided by sqrt(2 layers) in
  // the last layer of a residual branch.
  explicit Gpt(const GptShape& shape);
  at::Tensor forward(const at::Tensor& inputs) override;

  const GptShape& shape() const { return shape_; }
  // Floating-point operations of forward and backward for a token (PaLM, Chowdhery et al. 2022,
  // appendix B): 6 for each parameter except the position embedding, plus 12 layers * width *
  // context.
  double flops_per_token() const;

 private:
  void initialise();

  GptShape shape_;
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr};
  torch::nn::ModuleList blocks_;
  torch::nn::LayerNorm norm_{nullptr};
};
