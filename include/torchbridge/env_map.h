// The environment as names and values, and what reads and prints such text.
#pragma once

#include "bridge/base/env_map.h"
