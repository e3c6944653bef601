// When the ranks stop: what each of them wants is agreed on, so that all stop at the same point.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "trainer_template/runtime/process_group/rank_group.h"

namespace torchbridge::train {

// What is asked of this rank.
struct StopQuestions {
  std::function<bool()> wants_to_stop;
  // Whether it has what the next step needs. Waits for that, but no longer than `time`. Empty: it always has.
  std::function<bool(std::chrono::milliseconds time)> has_data;
};

// The same on all ranks. One thread. The group must outlive it.
class StopAgreement {
 public:
  StopAgreement(RankGroup& group, StopQuestions questions);

  // For a reduction that is made anyway, once a step: what this rank adds, and what came out. So agreement costs no
  // collective of its own.
  struct Votes {
    double stop = 0, without_data = 0;  // ranks
  };
  Votes votes() const;
  void learn(const Votes& sums);

  // Whether the next step is to be taken: false once it was agreed to stop. Where a rank did not have its data yet, and
  // before the first step, it is a collective that lasts until all have theirs, or one wants to stop.
  bool may_step();

  // Collective: asks now. True: stop.
  bool ask() { return lowest(1) == 0; }

  bool agreed() const { return agreed_; }

 private:
  friend class StopRounds;
  // Collective: the lowest answer, from 1 on; 0 where a rank wants to stop, which then is agreed.
  std::int64_t lowest(std::int64_t answer);

  RankGroup& group_;
  StopQuestions questions_;
  bool agreed_ = false, data_is_there_ = false;
};

// Asks about ten times a second in long work between two steps, such as an evaluation.
class StopRounds {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StopRounds(StopAgreement& agreement, std::function<Clock::time_point()> now = Clock::now)
      : agreement_(agreement), now_(std::move(now)), begin_(now_()) {}
  // True: stop now. All ranks must call it equally often: it is a collective from time to time, by the slowest rank's
  // pace.
  bool stop_now();

 private:
  StopAgreement& agreement_;
  std::function<Clock::time_point()> now_;
  Clock::time_point begin_;
  std::int64_t calls_ = 0, next_ = 0;
};

}  // namespace torchbridge::train
