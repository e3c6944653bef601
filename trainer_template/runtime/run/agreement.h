// Checks that all ranks have the same options and data. A wrapper script that differs between
// nodes, or an old copy of the data on one node, would otherwise give collectives that do not
// match, or models that drift apart unnoticed.
#pragma once

#include <string>

#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>

namespace torchbridge::train {

// Both are collective, and throw on all ranks if a rank differs from rank 0. TrainError names the
// options, or --data.
void check_same_options(const Options& options, ProcessGroup& group);
void check_same_sizes(const Task& task, const std::string& data, ProcessGroup& group);

}  // namespace torchbridge::train
