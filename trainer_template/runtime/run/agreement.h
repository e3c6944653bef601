// Checks that all ranks have the same options and data. A wrapper script that differs between
// nodes, or an old copy of the data on one node, would otherwise give collectives that do not
// match, or models that drift apart unnoticed.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/options.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>
#include <torchbridge/train_state.h>

namespace torchbridge::train {

// Both are collective, and throw on all ranks if a rank differs from rank 0. TrainError names the
// options, or --data.
void check_same_options(const Options& options, ProcessGroup& group);
void check_same_sizes(const Task& task, const std::string& data, ProcessGroup& group);

// The names of a data set's classes and columns as they are printed: a checkpoint has them.
DataNames printed_names(const Dataset& dataset);

// Not collective. Throws TrainError, which names the first class or column that differs from the
// training set's: a model's inputs or outputs would stand for others. Without names on one side
// nothing is compared.
void check_same_names(const Dataset& train_set, const DataNames& names, const std::string& owner);

}  // namespace torchbridge::train
