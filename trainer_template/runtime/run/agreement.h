// What a wrapper script that differs from node to node, or a stale copy of the data on one of them, makes different on
// the ranks of a run: it would end in collectives that do not fit together, or in models that drift apart without a
// word.
#pragma once

#include <string>

#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/options/options.h"
#include "trainer_template/runtime/training/task.h"

namespace torchbridge::train {

// Both are collective, and throw on all ranks where one has something else than rank 0 (TrainError, which names the
// options, or --data).
void check_same_options(const Options& options, ProcessGroup& group);
void check_same_sizes(const Task& task, const std::string& data, ProcessGroup& group);

}  // namespace torchbridge::train
