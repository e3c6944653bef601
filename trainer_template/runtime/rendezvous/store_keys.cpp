#include "trainer_template/runtime/rendezvous/store_keys.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/rendezvous/quiet_c10d.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeysOfOneWait = 1024;  // TCPStore accepts at most 131,072 in one call

}  // namespace

std::string key(const char* what, int rank) {
  return std::string(what) + "/" + std::to_string(rank);
}

void put(c10d::Store& store, const std::string& name, const std::string& text) {
  store.set(name, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string get(c10d::Store& store, const std::string& name) {
  const std::vector<std::uint8_t> bytes = store.get(name);
  return {bytes.begin(), bytes.end()};
}

TrainError changed_key(const std::string& name, const std::string& value, const char* expected) {
  return TrainError(formatted("the store's key {} is '{}', not {}: another program has changed it",
                              name, printable(value), expected));
}

TrainError changed_key(const std::string& name) {
  return TrainError(formatted(
      "the store's key {} is not what rank 0 has set: another program has changed it", name));
}

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> missing_after(c10d::Store& store, const char* what, std::vector<int> ranks,
                               std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  // One blocking wait in the store: polling each key would keep the store of thousands of ranks
  // from serving those that join.
  std::size_t begin = 0;
  for (std::size_t end = 0; begin < ranks.size(); begin = end) {
    end = std::min(ranks.size(), begin + kKeysOfOneWait);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    std::vector<std::string> keys;
    for (std::size_t i = begin; i < end; ++i) keys.push_back(key(what, ranks[i]));
    try {
      const QuietC10d quiet(QuietC10d::kError);  // it warns of a wait that times out
      store.wait(keys, left);
    } catch (const c10::Error&) {
      break;  // timed out, or the store is lost: then check() below throws
    }
  }
  ranks.erase(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(begin));
  std::erase_if(ranks, [&](int rank) { return store.check({key(what, rank)}); });
  return ranks;
}

std::string list_of(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i)
    text += (i ? "," : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += formatted(" and {} more", ranks.size() - kShown);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace torchbridge::train
