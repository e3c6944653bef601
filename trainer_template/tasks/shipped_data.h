// The data sets that are installed with the program.
#pragma once

#include <string>

// The folder of a data set: "digits" is PREFIX/share/torchbridge/digits for a program in
// PREFIX/bin, else data/digits in the source tree.
std::string shipped_data(const std::string& name);
