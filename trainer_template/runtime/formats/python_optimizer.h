// Python's optimizer state_dict, which keys state by the parameter's number instead of its name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bridge/base/result.h"
#include "trainer_template/runtime/base/optimizer_record.h"
#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
  bool trained = true;  // false: frozen, so it never has a gradient
};

// One piece of state: "layers.0.weight.exp_avg".
struct PythonState {
  std::string name;
  const PickledValue* value = nullptr;  // a tensor, or a number (the "step" of older versions)
};

// The state of all parameters of `optimizer` (find_optimizer()), by name. The name of a parameter's number comes from
// - the names in param_groups, if Python's optimizer was created with named_parameters(); else
// - `groups` (of this run), if the optimizer has as many groups of the same sizes; else
// - the order of `parameters` (of the model), if the optimizer has one group.
// Shapes must be equal. `aliases`: other names of shared parameters, each with its name in `parameters`. State is
// required for every trained parameter in `groups` of which both optimizers keep state (SGD without momentum keeps
// none). It may be missing altogether if `stepped` is false: no step was done. An error names the parameter, or what
// the optimizer has.
Result<std::vector<PythonState>> state_by_name(const PickledValue& optimizer,
                                               const std::vector<ParameterShape>& parameters,
                                               const std::vector<OptimizerRecord::GroupRecord>& groups,
                                               const std::map<std::string, std::string>& aliases = {},
                                               bool stepped = true);

// Python's state_dict of an optimizer with fused=True. `state`: names as in a checkpoint ("layers.0.weight.exp_avg"),
// each with its tensor.
Pickled python_optimizer(const OptimizerRecord& record, const std::vector<std::pair<std::string, Pickled>>& state);

}  // namespace torchbridge::train
