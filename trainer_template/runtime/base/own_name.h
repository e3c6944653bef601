// Names that a program gives to its own numbers and tensors, in metrics files and checkpoints.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace torchbridge::train {

// Of small letters, digits and underscores, at least one.
inline bool is_own_name(std::string_view name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return !name.empty() && name.find_first_not_of(kLetters) == name.npos;
}

// Those of the numbers that a run keeps without a part.
inline constexpr const char *kTrainSet = "train_set", *kStepScale = "step_scale",
                            *kEvaluation = "evaluation";

// Of a part of the program's. Under a name of the run's own its numbers would replace the run's.
inline bool is_part_name(std::string_view name) {
  constexpr std::array<std::string_view, 3> kOfRun = {kTrainSet, kStepScale, kEvaluation};
  return is_own_name(name) && std::ranges::find(kOfRun, name) == kOfRun.end();
}

}  // namespace torchbridge::train
