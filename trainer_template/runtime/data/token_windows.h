// Windows of consecutive tokens for a language model: each token's target is the token after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer_template/runtime/data/dataset.h"
#include "trainer_template/runtime/formats/token_file.h"

namespace torchbridge::train {

struct TokenWindowsOptions {
  std::int64_t length = 1024;  // tokens of a sample
  std::int64_t stride = 0;  // from one sample's first token to the next one's; 0: length, so that they do not overlap
  std::int64_t vocabulary = 65536;  // tokens are below it
  TokenFormat format = TokenFormat::kAuto;
};

// inputs and targets: [samples, length] int64. Windows do not reach from one file into the next; a rest at the
// end of a file that is shorter than a window is not used.
class TokenWindows : public Dataset {
 public:
  // Throws TrainError, which names the file: one that cannot be read, is not a token file, or is shorter than a window.
  TokenWindows(const std::vector<std::filesystem::path>& files, const TokenWindowsOptions& options);

  std::int64_t size() const override { return first_of_file_.back(); }
  // Throws TrainError for a token outside of the vocabulary, with file and offset: there are too many to check all in
  // the constructor.
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override;  // the tokens of each file

 private:
  // Copies a window and the token after it.
  void copy(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const;

  TokenWindowsOptions options_;
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_of_file_;  // the first sample of each file; last, the number of all samples
};

}  // namespace torchbridge::train
