#include "bridge/bootstrap/missing_ranks.h"

#include "bridge/base/message_text.h"

namespace torchbridge {

std::string seconds(std::chrono::milliseconds time) {
  const auto tenths = std::to_string(time.count() / 100 % 10);
  return std::to_string(time.count() / 1000) + (tenths == "0" ? "" : "." + tenths) + " s";
}

Error missing_ranks_error(const std::vector<bool>& arrived, std::chrono::milliseconds timeout) {
  constexpr int kShown = 8;
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < arrived.size(); ++rank) {
    if (arrived[rank]) continue;
    if (count++ < kShown) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (count > kShown) ranks += ", ...";
  return {
      formatted("{} of {} ranks did not arrive within {} ({}): does every rank run this program?",
                count, arrived.size(), seconds(timeout), ranks)};
}

}  // namespace torchbridge
