#include <gtest/gtest.h>

#include "bridge/launch/launch.h"

namespace torchbridge {
namespace {

struct Case {
  const char* launcher;
  const char* matching_launcher;
  const char* phrase;
};
const Case kCases[] = {
    {"none", "", "started without a launcher"},
    {"slurm", "", "started by slurm"},
    {"tcp://", "", "found by tcp://"},
    {"environment", "", "started with torchrun's variables"},
    {"environment", "slurm", "started by slurm with torchrun's variables"},
};

TEST(HowStarted, NamesTheLauncherAlsoWhereTheVariablesAreSet) {
  for (const auto& [launcher, matching_launcher, phrase] : kCases) {
    Launch launch;
    launch.launcher = launcher;
    if (*matching_launcher) launch.matching_facts = LaunchFacts{.launcher = matching_launcher};
    EXPECT_EQ(how_started(launch), phrase);
  }
}

}  // namespace
}  // namespace torchbridge
