// The state of a part as a checkpoint would have it.
#pragma once

#include <torchbridge/part.h>

namespace torchbridge::train {

inline SavedNumbers saved_of(const Part& part) {
  PartNumbers all;
  save_numbers(part.name(), part.numbers(), all);
  return {part.name(), all};
}

}  // namespace torchbridge::train
