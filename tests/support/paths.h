// Where tests find files. Built by itself, without a path in any other object: those of two clones
// are the same then, for ccache.
#pragma once

#include <string>

// A path in the source tree, as "data/digits".
std::string in_source(const std::string& path);
// A path in the build folder, as "bin/trainer".
std::string in_build(const std::string& path);
// The interpreter that has torch; empty where there is none.
std::string python();
