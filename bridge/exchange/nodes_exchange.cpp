#include <algorithm>
#include <optional>

#include <torchbridge/core/env_map.h>
#include <torchbridge/exchange/exchange.h>
#include <torchbridge/net/values.h>

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kWord{300};  // for the word of a node that is not complete yet

milliseconds left_until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1));
}

class NodesExchange : public Exchange {
 public:
  NodesExchange(NodeGroup group, Otherwise otherwise) : group_(std::move(group)), otherwise_(std::move(otherwise)) {}

  Result<std::vector<std::string>> all_gather(const std::string& value, milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    Beyond beyond;
    beyond.answer = [&](const auto& here) {
      Gathering gathering = group_.gathering;
      gathering.timeout = left_until(deadline);
      gathering.patience = std::min(gathering.patience, timeout / 2);
      return gather_from(here, std::move(gathering));
    };
    // So that the others hear who is here, and name the right ranks if the rest of this node does not come.
    beyond.waiting = [&](const auto& here) {
      Gathering gathering = group_.gathering;
      gathering.provisional = true;
      gathering.timeout = gathering.patience = kWord;
      (void)gather_from(here, std::move(gathering));
    };
    const auto node = meet_on_node(group_.node_key, group_.local_rank, group_.local_size, std::move(beyond));
    auto values = node->all_gather(join_values({std::to_string(group_.rank), value}), timeout);
    const bool nobody = values && values->size() == 1;  // which is no job's number of ranks: it has several nodes
    if (!nobody) return values;
    auto other = otherwise_();
    if (!other) return Error{values->front() + "; " + other.error().message};
    auto found = (*other)->all_gather(value, left_until(deadline));
    if (!found) return Error{values->front() + "; " + found.error().message};
    return found;
  }

 private:
  // The values of all ranks, or one: why nobody was heard of.
  Result<std::vector<std::string>> gather_from(const std::vector<std::string>& here, Gathering gathering) const {
    std::map<int, std::string> own;
    for (const auto& pair : here) {
      if (pair.empty()) continue;
      const auto words = split_values(pair);
      const auto rank = words.size() == 2 ? parse_integer(words[0], 0, group_.gathering.world_size - 1) : std::nullopt;
      if (!rank) return Error{"a rank of this node said '" + printable(pair) + "': do all ranks run the same version?"};
      own[static_cast<int>(*rank)] = words[1];
    }
    gathering.listens = gathering.listens || own.contains(0);
    if (gathering.listens) gathering.other_places.clear();
    auto gathered = gather(gathering, own);
    if (!gathered) return gathered.error();
    if (gathered->values.empty()) return std::vector{gathered->nobody};
    return std::move(gathered->values);
  }

  NodeGroup group_;
  Otherwise otherwise_;
};

}  // namespace

std::unique_ptr<Exchange> meet_over_nodes(NodeGroup group, Otherwise otherwise) {
  return std::make_unique<NodesExchange>(std::move(group), std::move(otherwise));
}

}  // namespace torchbridge
