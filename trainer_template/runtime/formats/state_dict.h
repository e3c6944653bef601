// Where a Python training script puts its state_dicts in what it saves.
#pragma once

#include <string_view>

#include "bridge/base/result.h"
#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// The model's state_dict: `content` itself, or its value of the key "model", "state_dict" or "model_state_dict". The
// error lists the keys that `content` has. Never null.
Result<const PickledValue*> find_state_dict(const PickledValue& content);

// The prefix of every name, "module.", if the model was wrapped in DistributedDataParallel; else empty.
std::string_view common_prefix(const PickledValue& state_dict);

// The optimizer's state_dict (a dictionary "state" and a list "param_groups") under the key "optimizer",
// "optimizer_state_dict" or "optim"; null if there is none.
const PickledValue* find_optimizer(const PickledValue& content);

}  // namespace torchbridge::train
