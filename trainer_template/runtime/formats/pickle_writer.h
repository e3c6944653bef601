// Writes values as a pickle that torch.load(weights_only=True) and pickle.h read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// Makers of values. The items of a container must be complete: values never change.
namespace pickled {
Pickled none();
Pickled boolean(bool value);
Pickled integer(std::int64_t value);
Pickled number(double value);
Pickled text(std::string value);
Pickled list(std::vector<Pickled> items);
Pickled tuple(std::vector<Pickled> items);
Pickled dict(const std::vector<std::pair<Pickled, Pickled>>& items);
Pickled tensor(PickledTensor tensor);
// Of a whole storage, contiguous.
Pickled tensor(std::string storage, std::string dtype, std::vector<std::int64_t> shape);
}  // namespace pickled

// Protocol 2. Tensors are on the CPU without requires_grad. A shared value is written once for each use; tensors of one
// storage share it. REQUIRES: no kName and no kStorage, and element types that storage_class() has.
std::string to_pickle(const PickledValue& value);

}  // namespace torchbridge::train
