// Slurm's header, for C++.
#pragma once

// It declares the hooks without C linkage, and Slurm looks them up by name in a library that hides
// all else.
#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
}
#pragma GCC visibility pop
