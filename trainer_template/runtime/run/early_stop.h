// Stops training when evaluations no longer get better, and remembers the best.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace torchbridge::train {

// The same on all ranks, which see the same losses.
class EarlyStop {
 public:
  // `patience`: evaluations without a lower loss until is_due(); 0: never. `state` is a checkpoint's; other entries are left alone.
  EarlyStop(std::int64_t patience, const std::map<std::string, double>& state);

  // A loss that is NaN is no lower one.
  void observe(double eval_loss, std::int64_t step);
  bool is_due() const { return patience_ > 0 && without_ >= patience_; }

  bool has_best() const { return best_step_ > 0; }
  double best_loss() const { return best_; }
  std::int64_t best_step() const { return best_step_; }
  // For a checkpoint: "best.loss", "best.step", "best.without"; the first two where there is a best.
  void put_state(std::map<std::string, double>& state) const;

 private:
  std::int64_t patience_, without_ = 0, best_step_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace torchbridge::train
