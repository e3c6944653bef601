#include <torchbridge/train/run/preemption.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

namespace torchbridge::train {
namespace {

constexpr std::pair<int, const char*> kSignals[] = {{SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGINT, "SIGINT"}};

// A handler can reach nothing but globals.
std::atomic<int> first_signal{0};
std::atomic<bool> interrupted{false};
struct sigaction before[std::size(kSignals)];

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void take_down(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
  if (number != SIGINT || !interrupted.exchange(true)) return;
  struct sigaction ends{};
  ends.sa_handler = SIG_DFL;
  sigaction(SIGINT, &ends, nullptr);
  raise(SIGINT);  // delivered when this handler returns
}

}  // namespace

Result<std::optional<std::chrono::system_clock::time_point>> end_of_job(const EnvMap& environment) {
  constexpr std::int64_t kYear2200 = 7258118400;
  const auto seconds = environment.integer("SLURM_JOB_END_TIME", 0, kYear2200);
  if (!seconds) return seconds.error();
  if (!*seconds) return std::optional<std::chrono::system_clock::time_point>();
  return std::optional(std::chrono::system_clock::time_point(std::chrono::seconds(**seconds)));
}

Preemption::Preemption(const PreemptionOptions& options) : options_(options) {
  first_signal = 0;
  interrupted = false;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    const int number = kSignals[i].first;
    struct sigaction action{};
    action.sa_handler = take_down;
    action.sa_flags = SA_RESTART;  // a write or a wait goes on
    sigemptyset(&action.sa_mask);
    sigaction(number, nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

Preemption::~Preemption() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i].first, &before[i], nullptr);
}

bool Preemption::requested() const {
  if (first_signal != 0) return true;
  return options_.before_end && options_.end_of_job && std::chrono::system_clock::now() >= *options_.end_of_job - *options_.before_end;
}

std::string Preemption::reason() const {
  const int number = first_signal;
  const auto found = std::find_if(std::begin(kSignals), std::end(kSignals), [&](const auto& known) { return known.first == number; });
  if (found != std::end(kSignals)) return found->second;
  if (!requested()) return "";
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(*options_.end_of_job - std::chrono::system_clock::now());
  return "the job ends in " + std::to_string(std::max<std::int64_t>(left.count(), 0)) + " s";
}

}  // namespace torchbridge::train
