// Process groups: torch.distributed.init_process_group for C++, and registration of backends.
#pragma once

#include "trainer_template/runtime/backends/backend_registry.h"
#include "trainer_template/runtime/base/errors.h"
#include "trainer_template/runtime/process_group/process_group.h"
#include "trainer_template/runtime/tensors/error_text.h"
