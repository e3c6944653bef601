// The error file of this process, which its agent or launcher reads: record, and the file itself.
#pragma once

#include "bridge/worker/record.h"
#include "bridge/worker/write_error_file.h"
