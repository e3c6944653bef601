// Agreement of the ranks to stop at the same point.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include <torchbridge/part.h>
#include <torchbridge/process_group.h>

namespace torchbridge::train {

// What this rank contributes.
struct StopCallbacks {
  std::function<bool()> wants_to_stop;
  // Whether this rank has the data of the next step. Waits for it at most `time`. Empty: it always
  // has.
  std::function<bool(std::chrono::milliseconds time)> has_data;
  // Whether they cannot be made: the others would wait for this rank. Empty: they can.
  std::function<bool()> data_fail = {};
};

// Gives the same answers on all ranks. For one thread. The group must outlive it.
class StopAgreement {
 public:
  StopAgreement(RankGroup& group, StopCallbacks callbacks);

  // The votes travel with the reduction of each step, so that agreement needs no collective of its
  // own: votes() is what this rank adds to it, take_sums() takes the sums of all. The last step of
  // a run asks for no data.
  StopVotes votes(bool is_last = false) const;
  void take_sums(const StopVotes& sums);

  // Whether to take the next step: false once the ranks agreed to stop. If a rank had no data at
  // the last votes, and before the first step, it is a collective that lasts until all ranks have
  // data, or one votes to stop.
  bool may_step();

  // Collective: asks all ranks now. True: stop.
  bool ask() { return lowest(1) == 0; }

  bool agreed() const { return agreed_; }

 private:
  friend class StopPoller;
  // Collective: the lowest answer of the ranks; 0 if one is 0 or a rank votes to stop, which is
  // then agreed.
  std::int64_t lowest(std::int64_t answer);

  RankGroup& group_;
  StopCallbacks callbacks_;
  bool agreed_ = false, data_is_there_ = false;
};

// Asks the ranks about ten times a second during long work between two steps, such as an
// evaluation.
class StopPoller {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StopPoller(StopAgreement& agreement, std::function<Clock::time_point()> now = Clock::now)
      : agreement_(agreement), now_(std::move(now)), begin_(now_()) {}
  // True: stop now. All ranks must call it equally often: some calls are collectives, at intervals
  // that the slowest rank determines.
  bool stop_now();

 private:
  StopAgreement& agreement_;
  std::function<Clock::time_point()> now_;
  Clock::time_point begin_;
  std::int64_t calls_ = 0, next_ = 0;
};

}  // namespace torchbridge::train
