// Everything for a training program: process group, data, DDP, optimizers, checkpoints, and the parts of a training
// loop.
#pragma once

#include <unistd.h>  // environ

#include <ATen/ops/zeros.h>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/checkpoint/checkpoint.h"
#include "trainer_template/runtime/data/loader.h"
#include "trainer_template/runtime/ddp/ddp.h"
#include "trainer_template/runtime/ddp/model_tensors.h"
#include "trainer_template/runtime/optim/learning_rates.h"
#include "trainer_template/runtime/options/command_line.h"
#include "trainer_template/runtime/output/sample_log.h"
#include "trainer_template/runtime/run/agreement.h"
#include "trainer_template/runtime/run/inference.h"
#include "trainer_template/runtime/run/job.h"
#include "trainer_template/runtime/run/load_or_begin.h"
#include "trainer_template/runtime/run/numerics.h"
#include "trainer_template/runtime/run/run_log.h"
#include "trainer_template/runtime/run/setup.h"
#include "trainer_template/runtime/training/accumulation.h"
#include "trainer_template/runtime/training/early_stop.h"
#include "trainer_template/runtime/training/forward_loss.h"
#include "trainer_template/runtime/training/non_finite.h"
#include "trainer_template/runtime/training/step_profile.h"
#include "trainer_template/runtime/training/step_sums.h"
#include "trainer_template/runtime/training/stop_agreement.h"
#include "trainer_template/runtime/training/throughput.h"
