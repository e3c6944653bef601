// What is accepted is within its bounds.
#include <torchbridge/train/checkpoint/pickle.h>

#include "expect.h"

using namespace torchbridge;
using namespace torchbridge::train;

namespace {

void check(const PickledValue& value, int& visits) {
  if (++visits > 10'000) return;  // values may be shared by many
  expect(value.depth <= 64, "not too deep");
  expect(!value.is(PickledValue::Kind::kDict) || value.items.size() % 2 == 0, "a value for each key");
  const PickledTensor& tensor = value.tensor;
  if (value.is(PickledValue::Kind::kTensor)) {
    expect(tensor.shape.size() == tensor.strides.size(), "a stride for each dimension");
    __int128 last = tensor.offset;
    bool empty = false;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      empty |= tensor.shape[i] == 0;
      last += static_cast<__int128>(tensor.shape[i] - 1) * tensor.strides[i];
    }
    expect(empty ? tensor.offset <= tensor.storage_size : last < tensor.storage_size, "inside its storage");
  }
  for (const auto& item : value.items) {
    expect(item->depth < value.depth, "nothing is inside itself");
    check(*item, visits);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto value = parse_pickle({reinterpret_cast<const char*>(data), size});
  int visits = 0;
  if (value) check(**value, visits);
  else expect_presentable(value.error());
  return 0;
}
