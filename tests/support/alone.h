// A process group of one rank, for tests.
#pragma once

#include <torchbridge/group_options.h>
#include <torchbridge/process_group.h>

#include "bridge/launch/launch.h"

inline torchbridge::train::ProcessGroup& alone() {
  static torchbridge::train::ProcessGroup group(torchbridge::Launch{}, {});
  return group;
}
