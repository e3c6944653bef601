// What is accepted is within its bounds, and written again it is the same; the state of an optimizer in it fits the
// model, or is rejected.
#include "tests/fuzz/programs/expect.h"
#include "trainer_template/runtime/formats/pickle.h"
#include "trainer_template/runtime/formats/pickle_writer.h"
#include "trainer_template/runtime/formats/python_optimizer.h"
#include "trainer_template/runtime/formats/state_dict.h"

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

// Whether it can be written; what stands for a class or a storage of its own cannot.
bool has_names(const PickledValue& value) {
  if (value.is(PickledValue::Kind::kName) || value.is(PickledValue::Kind::kStorage)) return true;
  for (const auto& item : value.items) {
    if (has_names(*item)) return true;
  }
  return false;
}

void check_optimizer(const PickledValue& optimizer) {
  const std::vector<ParameterShape> model = {{"a", {2, 3}}, {"b", {}, false}};
  const auto state = state_by_name(optimizer, model, {{.name = "", .options = {}, .parameters = {"b", "a"}}});
  if (!state) return expect_presentable(state.error());
  for (const auto& [name, value] : *state) {
    expect(name.starts_with("a.") || name.starts_with("b."), "state is a parameter's");
    const auto& shape = value->tensor.shape;
    expect(shape.empty() || shape == model[name[0] - 'a'].shape, "and has its shape");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto value = parse_pickle({reinterpret_cast<const char*>(data), size});
  int visits = 0;
  if (!value) {
    expect_presentable(value.error());
    return 0;
  }
  check(**value, visits);
  if (visits > 10'000) return 0;
  if (const auto found = find_state_dict(**value); !found) expect_presentable(found.error());
  if (const PickledValue* optimizer = find_optimizer(**value)) check_optimizer(*optimizer);
  if (has_names(**value)) return 0;
  const std::string once = to_pickle(**value);
  const auto again = parse_pickle(once);
  expect(again && to_pickle(**again) == once, "written and read it is the same");
  return 0;
}
