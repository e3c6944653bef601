// Optimizers, ZeRO, learning rate schedules, gradient clipping and loss scaling.
#pragma once

#include "trainer_template/runtime/optim/grad_clip.h"
#include "trainer_template/runtime/optim/grad_scaler.h"
#include "trainer_template/runtime/optim/learning_rates.h"
#include "trainer_template/runtime/optim/lr_schedule.h"
#include "trainer_template/runtime/optim/optimizer.h"
#include "trainer_template/runtime/optim/parameter_groups.h"
#include "trainer_template/runtime/optim/zero.h"
