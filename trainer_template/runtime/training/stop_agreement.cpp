#include "trainer_template/runtime/training/stop_agreement.h"

#include <algorithm>
#include <utility>

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;

// The time until a signal is noticed while a rank waits for data.
constexpr milliseconds kRound{200};
// A rank waits so long for its batch before it votes `without_data`: the collective that follows
// takes as long.
constexpr milliseconds kNearly{1};

}  // namespace

StopAgreement::StopAgreement(RankGroup& group, StopCallbacks callbacks)
    : group_(group), callbacks_(std::move(callbacks)) {
  if (!callbacks_.has_data) callbacks_.has_data = [](milliseconds) { return true; };
  if (!callbacks_.data_fail) callbacks_.data_fail = [] { return false; };
}

StopVotes StopAgreement::votes(bool is_last) const {
  const bool has_data = is_last || callbacks_.has_data(kNearly);  // before it may have failed
  const bool stops = callbacks_.wants_to_stop() || (!is_last && callbacks_.data_fail());
  return {.stop = stops ? 1.0 : 0.0, .without_data = has_data ? 0.0 : 1.0};
}

void StopAgreement::take_sums(const StopVotes& sums) {
  agreed_ = agreed_ || sums.stop > 0;
  data_is_there_ = sums.without_data == 0;
}

std::int64_t StopAgreement::lowest(std::int64_t answer) {
  const std::int64_t all = group_.minimum(callbacks_.wants_to_stop() ? 0 : answer);
  agreed_ = agreed_ || all == 0;
  return all;
}

bool StopAgreement::may_step() {
  constexpr std::int64_t kFailed = 0, kWithout = 1, kWith = 2;
  while (!agreed_ && !data_is_there_) {
    const std::int64_t data = callbacks_.has_data(kRound) ? kWith : kWithout;
    data_is_there_ = lowest(callbacks_.data_fail() ? kFailed : data) == kWith;
  }
  return !agreed_;
}

bool StopPoller::stop_now() {
  const std::int64_t done = calls_++;
  if (done < next_) return false;
  constexpr double kPause = 0.1, kMost = 1 << 20;
  const std::chrono::duration<double> time = now_() - begin_;
  const double calls_a_pause = done == 0 ? 1 : static_cast<double>(done) * kPause / time.count();
  const std::int64_t slowest =
      agreement_.lowest(static_cast<std::int64_t>(std::clamp(calls_a_pause, 1.0, kMost)));
  next_ = done + slowest;
  return slowest == 0;
}

}  // namespace torchbridge::train
