// Starts ranks from within a program, and what their run may be asked: torchbridge::agent.
#pragma once

#include "bridge/agent/spawn.h"
