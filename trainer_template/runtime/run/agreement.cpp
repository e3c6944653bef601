#include "trainer_template/runtime/run/agreement.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge::train {
namespace {

constexpr char kEnd = '\0';  // ends each name and value: a command line cannot contain it

std::string packed(const std::map<std::string, std::string>& entries) {
  std::string text;
  for (const auto& [name, value] : entries) text += name + kEnd + value + kEnd;
  return text;
}

std::map<std::string, std::string> unpacked(std::string_view text) {
  std::map<std::string, std::string> entries;
  while (!text.empty()) {
    const std::string name(take_until(text, kEnd));
    entries[name] = take_until(text, kEnd);
  }
  return entries;
}

std::map<std::string, std::string> compared(const Options& options) {
  std::map<std::string, std::string> values;
  for (const auto& [name, option] : options.chosen) {
    if (option.on_ranks == OnRanks::kSame || option.on_ranks == OnRanks::kGiven)
      values[name] = option.value;
  }
  return values;
}

// "--lr is 0.3 here and 0.1 on rank 0; ...": empty if all are the same.
std::string differences(const std::map<std::string, std::string>& own,
                        const std::map<std::string, std::string>& of_rank_0) {
  std::string text;
  for (const auto& [name, value] : own) {
    const auto other = of_rank_0.find(name);
    if (other == of_rank_0.end() || other->second == value) continue;
    const auto shown = [](const std::string& each) {
      return each.empty() ? "empty" : printable(each);
    };
    text += formatted("{}{} is {} here and {} on rank 0", text.empty() ? "" : "; ", name,
                      shown(value), shown(other->second));
  }
  return text;
}

void check_same(const char* kind, const char* kinds, const std::vector<std::string>& trained,
                const std::vector<std::string>& others, const std::string& owner) {
  if (trained.empty() || others.empty() || trained == others) return;
  const auto differs = std::ranges::mismatch(trained, others);
  const auto shown = [](auto name, const auto& names) {
    return name == names.end() ? "missing" : "'" + *name + "'";
  };
  throw TrainError(formatted("{} {} is {} in the training set and {} in {}: both need the same {}",
                             kind, differs.in1 - trained.begin(), shown(differs.in1, trained),
                             shown(differs.in2, others), owner, kinds));
}

}  // namespace

void check_same_options(const Options& options, ProcessGroup& group) {
  const auto own = compared(options);
  const auto of_rank_0 = unpacked(group.broadcast(packed(own)));
  all_or_none(group, [&] {
    const std::string found = differences(own, of_rank_0);
    if (!found.empty()) throw TrainError(formatted("{}; all ranks need the same options", found));
  });
}

void check_same_sizes(const Task& task, const std::string& data, ProcessGroup& group) {
  const std::string own = formatted("{} samples to train on and {} to evaluate with",
                                    task.train_set().size(), task.eval_set().size());
  const std::string of_rank_0 = group.broadcast(own);
  all_or_none(group, [&] {
    if (own != of_rank_0)
      throw TrainError(
          formatted("--data {} has {} here and {} on rank 0; all ranks need the same data", data,
                    own, of_rank_0));
  });
}

DataNames printed_names(const Dataset& dataset) {
  DataNames names{.classes = dataset.class_names(), .columns = dataset.column_names()};
  for (auto* list : {&names.classes, &names.columns}) {
    for (std::string& name : *list) name = printable(name);
  }
  return names;
}

void check_same_names(const Dataset& train_set, const DataNames& names, const std::string& owner) {
  const DataNames trained = printed_names(train_set);
  check_same("class", "classes", trained.classes, names.classes, owner);
  check_same("column", "columns", trained.columns, names.columns, owner);
}

}  // namespace torchbridge::train
