#include "shipped_data.h"

#include <filesystem>

std::string shipped_data(const std::string& name) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto installed = program.parent_path().parent_path() / "share/torchbridge" / name;
  return std::filesystem::exists(installed, ignored) ? installed.string()
                                                     : TORCHBRIDGE_DATA_DIR "/" + name;
}
