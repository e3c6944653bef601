// Where a Python training script puts its state_dicts in what it saves. Needs no libtorch.
#pragma once

#include <string_view>

#include "bridge/base/result.h"
#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// The model's state_dict: all of `content`, or what stands there as "model", "state_dict" or "model_state_dict". The
// error says what there is instead. Never null.
Result<const PickledValue*> find_state_dict(const PickledValue& content);

// What a model inside DistributedDataParallel puts before every name: "module.", or nothing.
std::string_view common_prefix(const PickledValue& state_dict);

// An optimizer's state_dict, with dictionary "state" and list "param_groups", as "optimizer", "optimizer_state_dict" or
// "optim"; null where there is none.
const PickledValue* find_optimizer(const PickledValue& content);

}  // namespace torchbridge::train
