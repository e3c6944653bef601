// The environment as names and values, and what reads and prints such text.
#pragma once

#include "bridge/core/env_map.h"
