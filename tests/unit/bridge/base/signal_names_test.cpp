#include "bridge/base/signal_names.h"

#include <csignal>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace torchbridge {
namespace {

TEST(SignalNames, AreThoseOfTheCLibrary) {
  for (int signal = 0; signal < NSIG; ++signal) {
    const char* expected = sigabbrev_np(signal);
    EXPECT_EQ(signal_abbreviation(signal), expected ? expected : "") << signal;
  }
  EXPECT_EQ(signal_abbreviation(SIGTERM), "TERM");
  EXPECT_EQ(signal_abbreviation(-1), "");
}

}  // namespace
}  // namespace torchbridge
