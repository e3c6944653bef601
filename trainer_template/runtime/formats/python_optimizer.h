// An optimizer's state_dict of Python: state by the number of the parameter, instead of its name. Needs no libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/formats/pickle.h"
#include "trainer_template/runtime/base/optimizer_record.h"

namespace torchbridge::train {

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
  bool trained = true;  // false: frozen, it never has a gradient
};

// One piece of state: "layers.0.weight.exp_avg".
struct PythonState {
  std::string name;
  const PickledValue* value = nullptr;  // a tensor, or a number (the "step" of older versions)
};

// The state of all parameters of `optimizer` (find_optimizer()), by name. Which parameter has which number is found
// from the names in param_groups, where Python's optimizer was given named_parameters(); else, where its groups are as
// many and as large as `groups` (names), from those; else, where it has one group, from the order of `parameters`, the
// model's. The shapes must agree. `aliases`: other names of parameters that are shared, with the name in `parameters`.
// An error names the parameter, or says what there is. State must be there of all parameters in `groups` that are
// trained and that both optimizers keep state of (SGD without momentum keeps none), unless there is none at all because
// no steps were done (`stepped`).
Result<std::vector<PythonState>> state_by_name(const PickledValue& optimizer,
                                               const std::vector<ParameterShape>& parameters,
                                               const std::vector<OptimizerRecord::Group>& groups,
                                               const std::map<std::string, std::string>& aliases = {},
                                               bool stepped = true);

// Python's state_dict: `state` is name and tensor, "layers.0.weight.exp_avg", as checkpoints have it. It is that of an
// optimizer with fused=True.
Pickled python_optimizer(const OptimizerRecord& record, const std::vector<std::pair<std::string, Pickled>>& state);

}  // namespace torchbridge::train
