#include "bridge/core/step_record.h"

#include <algorithm>
#include <map>

#include "bridge/base/env_map.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

// "VERSION JOB.STEP", " @ADDRESS" where there is one, then " NODES NUMBERS" for each component, or
// " truncated". NUMBERS are indices in NODES, one for each rank: "0*4,1,0*2" is 0,0,0,0,1,0,0.
constexpr std::string_view kVersion = "1 ", kTruncated = " truncated", kAddress = " @";

std::string run_lengths(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t first = 0, next = 0; first < numbers.size(); first = next) {
    while (next < numbers.size() && numbers[next] == numbers[first]) ++next;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[first]);
    if (next - first > 1) text += "*" + std::to_string(next - first);
  }
  return text;
}

struct Rest {
  std::string_view address, components;  // the components with the blank before them
};

// What follows the step's id; empty where the record is that of another step or version.
Rest rest_of(std::string_view record, std::string_view step) {
  const bool ours =
      record.starts_with(kVersion) && record.substr(kVersion.size()).starts_with(step);
  if (!ours) return {};
  record.remove_prefix(kVersion.size() + step.size());
  if (!record.starts_with(' ')) return {};
  if (!record.starts_with(kAddress)) return {{}, record};
  record.remove_prefix(kAddress.size());
  const auto end = std::min(record.find(' '), record.size());
  return {record.substr(0, end), record.substr(end)};
}

// False where a number is no index of a node, or where there are more than `most` ranks.
bool append_nodes(std::string_view numbers, const std::vector<int>& node_indices, std::size_t most,
                  std::vector<int>& node_of_rank) {
  while (!numbers.empty()) {
    auto count_text = take_until(numbers, ',');
    const auto index = parse_integer(take_until(count_text, '*'), 0,
                                     static_cast<std::int64_t>(node_indices.size()) - 1);
    const auto count =
        count_text.empty() ? 1 : parse_integer(count_text, 1, static_cast<std::int64_t>(most));
    if (!index || !count || node_of_rank.size() + *count > most) return false;
    node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(*count), node_indices[*index]);
  }
  return true;
}

}  // namespace

std::string step_record(const std::string& step, const std::vector<StepComponent>& components,
                        const std::string& address) {
  std::string text = std::string(kVersion) + step;
  if (!address.empty()) text += std::string(kAddress) + address;
  const std::size_t head = text.size();
  for (const auto& component : components)
    text += " " + component.nodes + " " + run_lengths(component.node_of_rank);
  if (text.size() > kMaxStepRecord) text.replace(head, std::string::npos, kTruncated);
  return text;
}

bool is_truncated(std::string_view record, std::string_view step) {
  return rest_of(record, step).components == kTruncated;
}

std::string address_in(std::string_view record, std::string_view step) {
  return std::string(rest_of(record, step).address);
}

std::vector<int> node_of_rank_in(std::string_view record, std::string_view step,
                                 const std::vector<std::string>& nodes, int world_size) {
  std::map<std::string_view, int> index_of;
  for (const auto& node : nodes) index_of.emplace(node, static_cast<int>(index_of.size()));
  std::vector<int> node_of_rank;
  auto rest = rest_of(record, step).components;
  take_until(rest, ' ');
  while (!rest.empty()) {
    const auto names = parse_hostlist(take_until(rest, ' '));
    std::vector<int> node_indices;
    for (std::size_t i = 0; names && i < names->size(); ++i) {
      const auto entry = index_of.find((*names)[i]);
      if (entry == index_of.end()) return {};
      node_indices.push_back(entry->second);
    }
    if (!append_nodes(take_until(rest, ' '), node_indices, static_cast<std::size_t>(world_size),
                      node_of_rank))
      return {};
  }
  return static_cast<int>(node_of_rank.size()) == world_size ? node_of_rank : std::vector<int>();
}

}  // namespace torchbridge
