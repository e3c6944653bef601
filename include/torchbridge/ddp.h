// DistributedDataParallel, its communication hooks, join, and synchronised batch normalisation.
#pragma once

#include "trainer_template/runtime/ddp/comm_hooks.h"
#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/ddp/join.h"
#include "trainer_template/runtime/ddp/model_tensors.h"
#include "trainer_template/runtime/ddp/sync_batch_norm.h"
