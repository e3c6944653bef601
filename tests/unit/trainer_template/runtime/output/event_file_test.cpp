#include "trainer_template/runtime/output/event_file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torchbridge/errors.h>

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

// Within a second, of one process or of several: TensorBoard reads files in the order of their
// names.
TEST(EventFile, NamesAreInTheOrderOfTheStarts) {
  TemporaryFolder folder;
  std::vector<std::string> names;
  for (int start = 0; start < 3; ++start) {
    const EventFile file(folder.path(), start);
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      found.push_back(entry.path().filename());
    std::ranges::sort(found);
    ASSERT_EQ(found.size(), names.size() + 1);
    EXPECT_TRUE(std::equal(names.begin(), names.end(), found.begin()));
    names = found;
  }
}

TEST(EventFile, NamesAFileThatItCannotWrite) {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  try {
    EventFile events(folder / "file", 0);
    FAIL() << "wrote into a file as if it were a folder";
  } catch (const TrainError& error) {
    EXPECT_NE(std::string(error.what()).find(folder / "file"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace torchbridge::train
