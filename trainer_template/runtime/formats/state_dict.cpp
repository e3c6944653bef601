#include "trainer_template/runtime/formats/state_dict.h"

#include <string>

#include "bridge/base/env_map.h"

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;

bool is_state_dict(const PickledValue& value) {
  if (!value.is(Kind::kDict)) return false;
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    if (!value.items[i]->is(Kind::kText) || !value.items[i + 1]->is(Kind::kTensor)) return false;
  }
  return true;
}

std::string keys_of(const PickledValue& dict) {
  constexpr std::size_t kMaxKeys = 8, kMaxLength = 300;
  std::string text;
  std::size_t shown = 0;
  for (; shown < dict.items.size() && shown < 2 * kMaxKeys && text.size() < kMaxLength; shown += 2) {
    const auto& key = *dict.items[shown];
    text +=
        (text.empty() ? "'" : ", '") + (key.is(Kind::kText) ? printable(key.text) : std::to_string(key.integer)) + "'";
  }
  return shown < dict.items.size() ? text + ", ..." : text;
}

}  // namespace

Result<const PickledValue*> find_state_dict(const PickledValue& content) {
  if (is_state_dict(content)) return &content;
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    const PickledValue* found = content.find(key);
    if (found != nullptr && is_state_dict(*found)) return found;
  }
  if (!content.is(Kind::kDict)) return Error{"contains no state_dict: save model.state_dict(), not the model"};
  return Error{"contains no state_dict, also not under 'model', 'state_dict' or 'model_state_dict'; its keys are " +
               keys_of(content)};
}

std::string_view common_prefix(const PickledValue& state_dict) {
  constexpr std::string_view kPrefix = "module.";
  for (std::size_t i = 0; i < state_dict.items.size(); i += 2) {
    if (!state_dict.items[i]->text.starts_with(kPrefix)) return {};
  }
  return kPrefix;
}

const PickledValue* find_optimizer(const PickledValue& content) {
  for (const char* key : {"optimizer", "optimizer_state_dict", "optim"}) {
    const PickledValue* found = content.find(key);
    const PickledValue* state = found ? found->find("state") : nullptr;
    const PickledValue* groups = found ? found->find("param_groups") : nullptr;
    if (state && groups && state->is(Kind::kDict) && groups->is(Kind::kList)) return found;
  }
  return nullptr;
}

}  // namespace torchbridge::train
