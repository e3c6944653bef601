// The data sets that are installed with the program.
#pragma once

#include <filesystem>
#include <string>

// The folder of a data set: "digits" is PREFIX/share/torchbridge/digits for a program in
// PREFIX/bin, else data/digits in the source tree.
inline std::string shipped_data(const std::string& name) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto installed = program.parent_path().parent_path() / "share/torchbridge" / name;
  return std::filesystem::exists(installed, ignored)
             ? installed.string()
             : std::string(TORCHBRIDGE_DATA_DIR) + "/" + name;
}
