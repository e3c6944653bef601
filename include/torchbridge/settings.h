// Values of options that several parts of a run know.
#pragma once

namespace torchbridge::train {

// Of forward and backward passes.
enum class Precision { kFp32, kBf16, kFp16 };

// The mean over the batches of an accumulated step; the last batch of an epoch may be smaller than
// the others.
enum class AccumulationMean {
  kSamples,  // each sample has the same weight
  kBatches,  // each batch has the same weight: the usual loss / N of Python programs. Equal bit for
             // bit if all batches have one size
};

// What a run does after a step whose loss or a gradient is not finite.
enum class OnNan { kStop, kSkip };

// kBar: a bar that is redrawn in its line. kLines: a line every ten seconds. kAuto: the bar on a
// terminal, else lines. Under srun the output of a task is never a terminal, even if a person
// watches it.
enum class ProgressStyle { kAuto, kBar, kLines, kNone };

}  // namespace torchbridge::train
