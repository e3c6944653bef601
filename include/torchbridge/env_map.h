// The environment as names and values, and functions that parse and print such text.
#pragma once

#include "bridge/base/env_map.h"
