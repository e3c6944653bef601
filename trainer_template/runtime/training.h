// What a training program uses: process group, data, DDP, optimizers, checkpoints, and the parts of a training loop.
#pragma once

#include <ATen/ops/zeros.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/data/loader.h>
#include <torchbridge/train/ddp/ddp.h>
#include <torchbridge/train/failpoint.h>
#include <torchbridge/train/model_tensors.h>
#include <torchbridge/train/optim/accumulation.h>
#include <torchbridge/train/optim/learning_rates.h>
#include <torchbridge/train/run/agreement.h>
#include <torchbridge/train/run/command_line.h>
#include <torchbridge/train/run/early_stop.h>
#include <torchbridge/train/run/forward_loss.h>
#include <torchbridge/train/run/inference.h>
#include <torchbridge/train/run/job.h>
#include <torchbridge/train/run/ledger.h>
#include <torchbridge/train/run/load_or_begin.h>
#include <torchbridge/train/run/non_finite.h>
#include <torchbridge/train/run/numerics.h>
#include <torchbridge/train/run/run_log.h>
#include <torchbridge/train/run/setup.h>
#include <torchbridge/train/run/step_profile.h>
#include <torchbridge/train/run/step_sums.h>
#include <torchbridge/train/run/stop_agreement.h>
#include <torchbridge/train/run/throughput.h>

