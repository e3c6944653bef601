// Ranks, nodes and the address of rank 0, from whatever launcher started this process:
// resolve_launch.
#pragma once

#include "bridge/core/init_method.h"
#include "bridge/launch/launch.h"
