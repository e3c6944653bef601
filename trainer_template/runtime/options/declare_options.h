// The declarations of the trainer's options.
#pragma once

#include <span>

#include <torchbridge/options.h>

namespace torchbridge::train {

// Declares every option of the trainer and of its tasks in the table. `options` must outlive it.
void declare_options(OptionTable& table, Options& options, std::span<const TaskRegistration> kinds);
// The part of declare_options() in job_options.cpp.
void declare_job_options(OptionTable& table, Options& options);

}  // namespace torchbridge::train
