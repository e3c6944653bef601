#include "trainer_template/runtime/formats/python_optimizer.h"

#include <set>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/formats/pickle_writer.h"

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;
using Names = std::map<std::int64_t, std::string>;  // by number

struct PythonParameterGroup {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> names;  // empty unless the optimizer was created with named_parameters()
  bool keeps_state = true;         // false: SGD without momentum
};

Result<std::vector<PythonParameterGroup>> groups_of(const PickledValue& optimizer) {
  std::vector<PythonParameterGroup> groups;
  for (const Pickled& each : optimizer.find("param_groups")->items) {
    PythonParameterGroup group;
    const PickledValue* numbers = each->find("params");
    if (numbers == nullptr || !numbers->is(Kind::kList))
      return Error{"its optimizer has a group without a list of parameters"};
    for (const Pickled& number : numbers->items) {
      if (!number->is(Kind::kInteger)) return Error{"its optimizer has a parameter that is not a number"};
      group.numbers.push_back(number->integer);
    }
    const PickledValue* names = each->find("param_names");
    if (names != nullptr && names->is(Kind::kList) && names->items.size() == group.numbers.size()) {
      for (const Pickled& name : names->items) group.names.push_back(name->text);
    }
    const PickledValue* momentum = each->find("momentum");  // of SGD
    const bool is_number = momentum != nullptr && (momentum->is(Kind::kFloat) || momentum->is(Kind::kInteger));
    group.keeps_state = !is_number || momentum->number != 0 || momentum->integer != 0;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string sizes_of(const std::vector<PythonParameterGroup>& groups) {
  std::string text;
  for (const PythonParameterGroup& group : groups)
    text += (text.empty() ? "" : ", ") + std::to_string(group.numbers.size());
  return text.empty() ? "no groups" : "groups of " + text + " parameters";
}

bool all_named(const std::vector<PythonParameterGroup>& groups) {
  for (const PythonParameterGroup& group : groups) {
    if (group.names.size() != group.numbers.size()) return false;
  }
  return !groups.empty();
}

bool same_sizes(const std::vector<PythonParameterGroup>& theirs,
                const std::vector<OptimizerRecord::GroupRecord>& ours) {
  if (theirs.size() != ours.size()) return false;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i].numbers.size() != ours[i].parameters.size()) return false;
  }
  return true;
}

std::string without_prefix(const std::string& name) { return name.starts_with("module.") ? name.substr(7) : name; }

Result<Names> names_of(const std::vector<PythonParameterGroup>& theirs, const std::vector<ParameterShape>& parameters,
                       const std::vector<OptimizerRecord::GroupRecord>& ours) {
  Names names;
  const bool named = all_named(theirs), grouped = same_sizes(theirs, ours);
  const bool in_order = theirs.size() == 1 && theirs[0].numbers.size() == parameters.size();
  if (!named && !grouped && !in_order) {
    return Error{"its optimizer has " + sizes_of(theirs) + ", which cannot be matched to the " +
                 std::to_string(parameters.size()) +
                 " parameters of this model: create it in Python with model.named_parameters(), or with the parameter "
                 "groups of this run"};
  }
  for (std::size_t g = 0; g < theirs.size(); ++g) {
    for (std::size_t i = 0; i < theirs[g].numbers.size(); ++i) {
      const std::string name = named     ? without_prefix(theirs[g].names[i])
                               : grouped ? ours[g].parameters[i]
                                         : parameters[i].name;
      if (!names.emplace(theirs[g].numbers[i], name).second) {
        return Error{"its optimizer has parameter " + std::to_string(theirs[g].numbers[i]) + " twice"};
      }
    }
  }
  return names;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += (text.empty() ? "" : ", ") + std::to_string(length);
  return "[" + text + "]";
}

// Of one parameter.
Status add_state(const PickledValue& kinds, const ParameterShape& parameter, std::vector<PythonState>& state) {
  if (!kinds.is(Kind::kDict))
    return Error{"its optimizer's state of '" + printable(parameter.name) + "' is not a dictionary"};
  for (std::size_t i = 0; i < kinds.items.size(); i += 2) {
    const PickledValue& value = *kinds.items[i + 1];
    const std::string name = parameter.name + "." + kinds.items[i]->text;
    if (value.is(Kind::kNone)) continue;  // a momentum_buffer before the first step
    const bool number = value.is(Kind::kFloat) || value.is(Kind::kInteger);
    if (!number && !value.is(Kind::kTensor))
      return Error{"its optimizer's '" + printable(name) + "' is neither tensor nor number"};
    const auto& shape = value.tensor.shape;
    if (!number && !shape.empty() && shape != parameter.shape) {
      return Error{"its optimizer's '" + printable(name) + "' has shape " + text_of(shape) + ", the parameter " +
                   text_of(parameter.shape) + ": does its optimizer have the parameters in another order?"};
    }
    state.push_back({name, &value});
  }
  return Ok{};
}

// The name of the first parameter that needs state and has none; empty if there is none. `there`: the parameters with
// state. `stateless`: those that Python's SGD without momentum trained, which have none.
std::string without_state(const std::map<std::string, const ParameterShape*>& parameters,
                          const std::vector<OptimizerRecord::GroupRecord>& groups, const std::set<std::string>& there,
                          const std::set<std::string>& stateless) {
  for (const OptimizerRecord::GroupRecord& group : groups) {
    const auto momentum = group.options.find("momentum");
    const bool is_sgd = momentum != group.options.end();
    if (is_sgd && momentum->second == 0) continue;
    for (const std::string& name : group.parameters) {
      const auto parameter = parameters.find(name);
      if (parameter == parameters.end() || !parameter->second->trained || there.contains(name)) continue;
      if (!is_sgd || !stateless.contains(name)) return name;
    }
  }
  return {};
}

}  // namespace

Result<std::vector<PythonState>> state_by_name(const PickledValue& optimizer,
                                               const std::vector<ParameterShape>& parameters,
                                               const std::vector<OptimizerRecord::GroupRecord>& groups,
                                               const std::map<std::string, std::string>& aliases, bool stepped) {
  const auto theirs = groups_of(optimizer);
  if (!theirs) return theirs.error();
  const auto names = names_of(*theirs, parameters, groups);
  if (!names) return names.error();
  std::map<std::string, const ParameterShape*> shapes;
  for (const ParameterShape& parameter : parameters) shapes.emplace(parameter.name, &parameter);

  const auto own_name = [&](const std::string& name) {
    const auto alias = aliases.find(name);
    return alias == aliases.end() ? name : alias->second;
  };
  std::set<std::string> there, stateless;
  for (const PythonParameterGroup& group : *theirs) {
    if (group.keeps_state) continue;
    for (const std::int64_t number : group.numbers) stateless.insert(own_name(names->at(number)));
  }

  std::vector<PythonState> state;
  std::set<std::string> seen;
  const PickledValue& entries = *optimizer.find("state");
  for (std::size_t i = 0; i < entries.items.size(); i += 2) {
    const PickledValue& number = *entries.items[i];
    const auto name = number.is(Kind::kInteger) ? names->find(number.integer) : names->end();
    if (name == names->end()) return Error{"its optimizer has state of a parameter that is in no group"};
    if (!seen.insert(name->second).second)
      return Error{"its optimizer has the state of '" + printable(name->second) + "' twice"};
    const auto parameter = shapes.find(own_name(name->second));
    if (parameter == shapes.end())
      return Error{"its optimizer has state of '" + printable(name->second) +
                   "', which is not a parameter of this model"};
    const std::size_t before = state.size();
    if (const Status good = add_state(*entries.items[i + 1], *parameter->second, state); !good) return good.error();
    if (state.size() > before) there.insert(parameter->first);
  }
  if (state.empty() && !stepped) return state;
  if (const std::string name = without_state(shapes, groups, there, stateless); !name.empty()) {
    return Error{
        "its optimizer has no state of '" + printable(name) +
        "', which this run trains: freeze it if it was frozen in Python, or load only the weights with --init-from"};
  }
  return state;
}

}  // namespace torchbridge::train
