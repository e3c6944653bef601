// Stops training when the evaluation loss no longer decreases, and records the lowest one.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <torchbridge/part.h>

namespace torchbridge::train {

// The same on all ranks, which see the same losses.
class EarlyStop final : public Part {
 public:
  // `patience`: evaluations without a lower loss until is_due(); 0: never, and none of
  // this run counts for a later one.
  explicit EarlyStop(std::int64_t patience) : patience_(patience) {}

  std::string name() const override { return "best"; }
  PartNumbers numbers() const override {
    PartNumbers numbers = {{"without", static_cast<double>(without_)}};
    if (best_loss_)
      numbers.insert({{"loss", *best_loss_}, {"step", static_cast<double>(best_step_)}});
    return numbers;
  }
  void load(const SavedNumbers& saved) override {
    without_ = saved.count_at("without");
    best_loss_ = saved.find("loss");
    if (best_loss_) best_step_ = saved.count_at("step");
  }
  // NaN is not a lower loss.
  void evaluated(std::int64_t step, double loss) override {
    if (patience_ > 0) ++without_;
    if (!(loss < best_loss_.value_or(std::numeric_limits<double>::infinity()))) return;
    best_loss_ = loss;
    best_step_ = step;
    without_ = 0;
  }

  bool is_due() const { return patience_ > 0 && without_ >= patience_; }
  std::optional<double> best_loss() const { return best_loss_; }
  std::int64_t best_step() const { return best_step_; }

 private:
  std::int64_t patience_;
  std::optional<double> best_loss_;
  std::int64_t best_step_ = 0,
               without_ = 0;  // of best_loss_; evaluations since, or since the start
};

}  // namespace torchbridge::train
