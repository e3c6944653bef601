// Process groups: torch.distributed.init_process_group for C++, and backends of the program's own.
#pragma once

#include "trainer_template/runtime/error_text.h"
#include "trainer_template/runtime/errors.h"
#include "trainer_template/runtime/group/backend_registry.h"
#include "trainer_template/runtime/group/process_group.h"
