#include "trainer_template/runtime/training/peak_tflops.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

namespace torchbridge::train {
namespace {

struct Peak {
  std::string_view name;  // part of the driver's name, in whole words
  // Tensor cores with fp16 (bf16 has the same rate) and with TF32, then plain fp32; 0: not
  // supported.
  double half, tf32, fp32;
  bool has_bf16 = true;
};

// From NVIDIA's data sheet of the product of that name; figures "with sparsity" are halved. Those
// of B200 and GB200 are an eighth of a HGX B200's and a 72nd of a GB200 NVL72's. The first entry
// that matches is used.
constexpr Peak kPeaks[] = {
    {"GB200", 2500, 1250, 80},
    {"B200", 2250, 1125, 75},
    {"GH200", 989.5, 494.5, 67},
    {"H200 NVL", 835.5, 417.5, 60},
    {"H200", 989.5, 494.5, 67},
    {"H100 NVL", 835.5, 417.5, 60},
    {"H100 PCIe", 756.5, 378, 51},
    {"H100", 989.5, 494.5, 67},
    {"A100", 312, 156, 19.5},
    {"A40", 149.7, 74.8, 37.4},
    {"A30", 165, 82, 10.3},
    {"A10", 125, 62.5, 31.2},
    {"L40S", 362.05, 183, 91.6},
    {"L40", 181.05, 90.5, 90.5},
    {"L4", 121, 60, 30.3},
    {"T4", 65, 0, 8.1, false},
    {"V100S", 130, 0, 16.4, false},
    {"V100-SXM2", 125, 0, 15.7, false},
    {"V100-PCIE", 112, 0, 14, false},
};

bool is_part_of_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; }

// Matches whole words: "A10" is not in "A100".
bool has_words(std::string_view name, std::string_view words) {
  for (std::size_t at = name.find(words); at != std::string_view::npos;
       at = name.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if ((at == 0 || !is_part_of_word(name[at - 1])) &&
        (end == name.size() || !is_part_of_word(name[end])))
      return true;
  }
  return false;
}

}  // namespace

std::optional<double> peak_tflops(const std::string& gpu, Precision precision, bool is_tf32) {
  const auto fits = [&](const Peak& each) { return has_words(gpu, each.name); };
  const auto found = std::find_if(std::begin(kPeaks), std::end(kPeaks), fits);
  if (found == std::end(kPeaks) || has_words(gpu, "MIG")) return std::nullopt;
  if (precision == Precision::kBf16 && !found->has_bf16) return std::nullopt;
  if (precision != Precision::kFp32) return found->half;
  return is_tf32 && found->tf32 > 0 ? found->tf32 : found->fp32;
}

}  // namespace torchbridge::train
