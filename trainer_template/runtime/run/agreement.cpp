#include "trainer_template/runtime/run/agreement.h"

#include <map>
#include <string_view>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

constexpr char kEnd = '\0';  // ends each name and value: a command line cannot contain it

std::string packed(const std::map<std::string, std::string>& entries) {
  std::string text;
  for (const auto& [name, value] : entries) text += name + kEnd + value + kEnd;
  return text;
}

std::map<std::string, std::string> unpacked(std::string_view text) {
  const auto take = [&] {
    const std::size_t end = text.find(kEnd);
    std::string item(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return item;
  };
  std::map<std::string, std::string> entries;
  while (!text.empty()) {
    std::string name = take();
    entries[std::move(name)] = take();
  }
  return entries;
}

std::map<std::string, std::string> compared(const Options& options) {
  std::map<std::string, std::string> values;
  for (const auto& [name, option] : options.chosen) {
    if (option.on_ranks == OnRanks::kSame || option.on_ranks == OnRanks::kGiven) values[name] = option.value;
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
    const auto shown = [](const std::string& each) { return each.empty() ? "empty" : printable(each); };
    text +=
        (text.empty() ? "" : "; ") + name + " is " + shown(value) + " here and " + shown(other->second) + " on rank 0";
  }
  return text;
}

}  // namespace

void check_same_options(const Options& options, ProcessGroup& group) {
  const auto own = compared(options);
  const auto of_rank_0 = unpacked(group.broadcast(packed(own)));
  all_or_none(group, [&] {
    const std::string found = differences(own, of_rank_0);
    if (!found.empty()) throw TrainError(found + "; all ranks need the same options");
  });
}

void check_same_sizes(const Task& task, const std::string& data, ProcessGroup& group) {
  const std::string own = std::to_string(task.train_set().size()) + " samples to train on and " +
                          std::to_string(task.eval_set().size()) + " to evaluate with";
  const std::string of_rank_0 = group.broadcast(own);
  all_or_none(group, [&] {
    if (own != of_rank_0)
      throw TrainError("--data " + data + " has " + own + " here and " + of_rank_0 +
                       " on rank 0; all ranks need the same data");
  });
}

}  // namespace torchbridge::train
