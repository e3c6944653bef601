#include <algorithm>

#include "bridge/bootstrap/exchange.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class GroupExchange : public Exchange {
 public:
  GroupExchange(BootstrapGroup group, FallbackExchange fallback)
      : group_(std::move(group)), fallback_(std::move(fallback)) {}

  Result<std::vector<std::string>> all_gather(const std::string& value,
                                              milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    BootstrapGroup group = group_;
    group.connect_timeout = std::min(group.connect_timeout, timeout / 2);
    auto gathered = torchbridge::all_gather(group, value, timeout);
    if (!gathered) return Error{gathered.error().message};  // every rank has it
    if (gathered->unreached.empty()) return std::move(gathered->values);
    auto other = fallback_();
    if (!other) {
      return Error{.message = gathered->unreached + "; " + other.error().message,
                   .only_here = other.error().only_here};
    }
    const auto left =
        std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1));
    auto found = (*other)->all_gather(value, left);
    if (!found) return Error{gathered->unreached + "; " + found.error().message};
    return found;
  }

 private:
  BootstrapGroup group_;
  FallbackExchange fallback_;
};

}  // namespace

std::unique_ptr<Exchange> make_group_exchange(BootstrapGroup group, FallbackExchange fallback) {
  return std::make_unique<GroupExchange>(std::move(group), std::move(fallback));
}

}  // namespace torchbridge
