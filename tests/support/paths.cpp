#include "tests/support/paths.h"

#include <filesystem>

std::string in_source(const std::string& path) { return SOURCE_DIR "/" + path; }
std::string in_build(const std::string& path) { return BUILD_DIR "/" + path; }
std::string python() { return std::filesystem::exists(PYTHON) ? PYTHON : ""; }
