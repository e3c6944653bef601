#include <map>

#include "trainer_template/runtime/formats/pickle_writer.h"
#include "trainer_template/runtime/formats/python_optimizer.h"

namespace torchbridge::train {
namespace {

using Entries = std::vector<std::pair<Pickled, Pickled>>;

bool is_flag(const std::string& option) { return option == "amsgrad" || option == "maximize" || option == "nesterov"; }

// Every key that the optimizer class reads: Optimizer.load_state_dict() replaces the whole group.
Pickled python_group(const OptimizerRecord& record, const OptimizerRecord::GroupRecord& group,
                     std::int64_t first_number) {
  using namespace pickled;
  Entries entries;
  for (const auto& [option, value] : group.options) {
    if (option == "beta1" || option == "beta2") continue;
    entries.emplace_back(text(option), is_flag(option) ? boolean(value != 0) : number(value));
  }
  if (group.options.contains("beta1")) {
    entries.emplace_back(text("betas"), tuple({number(group.options.at("beta1")), number(group.options.at("beta2"))}));
    entries.emplace_back(text("capturable"), boolean(false));
    entries.emplace_back(text("decoupled_weight_decay"), boolean(record.kind == "adamw"));
  }
  entries.emplace_back(text("foreach"), none());
  entries.emplace_back(text("differentiable"), boolean(false));
  entries.emplace_back(text("fused"), boolean(true));
  std::vector<Pickled> numbers, names;
  for (const std::string& name : group.parameters) {
    numbers.push_back(integer(first_number++));
    names.push_back(text(name));
  }
  entries.emplace_back(text("params"), list(std::move(numbers)));
  entries.emplace_back(text("param_names"), list(std::move(names)));
  return dict(entries);
}

}  // namespace

Pickled python_optimizer(const OptimizerRecord& record, const std::vector<std::pair<std::string, Pickled>>& state) {
  using namespace pickled;
  std::map<std::string, Entries> kinds;  // by parameter
  for (const auto& [name, tensor] : state) {
    const auto dot = name.rfind('.');
    kinds[name.substr(0, dot)].emplace_back(text(name.substr(dot + 1)), tensor);
  }
  Entries entries;
  std::vector<Pickled> groups;
  std::int64_t number = 0;
  for (const OptimizerRecord::GroupRecord& group : record.groups) {
    groups.push_back(python_group(record, group, number));
    for (const std::string& name : group.parameters) {
      const auto found = kinds.find(name);
      if (found != kinds.end()) entries.emplace_back(integer(number), dict(found->second));
      ++number;
    }
  }
  return dict({{text("state"), dict(entries)}, {text("param_groups"), list(std::move(groups))}});
}

}  // namespace torchbridge::train
