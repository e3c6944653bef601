// Tells the agent or launcher of this process why it failed: record, and the error file itself.
#pragma once

#include "bridge/worker/record.h"
#include "bridge/worker/write_error_file.h"
