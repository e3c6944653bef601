// Values as a pickle that torch.load(weights_only=True) takes: what pickle.h reads, the other way round.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// Values to put together; what goes into one is complete before.
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

// Protocol 2. Tensors are on the CPU and want no gradient; values that are shared are written several times, tensors of
// one storage share it. REQUIRES: no kName, no kStorage, and types of pickle.h's.
std::string to_pickle(const PickledValue& value);

}  // namespace torchbridge::train
