#include "tests/support/recorded_environment.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/paths.h"

namespace torchbridge {

EnvMap recorded_environment(const std::string& test_case, int rank) {
  const std::string path =
      in_source("tests/data/environments/") + test_case + "/rank" + std::to_string(rank) + ".env";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  EnvMap map;
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find('=');
    map.set(line.substr(0, equals), line.substr(equals + 1));
  }
  return map;
}

}  // namespace torchbridge
