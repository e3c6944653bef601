#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <iterator>

#include <torchbridge/preemption.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/ignored_signals.h"

namespace torchbridge::train {
namespace {

using SystemClock = std::chrono::system_clock;

struct HandledSignal {
  int number;
  const char* name;
};
constexpr HandledSignal kSignals[] = {{SIGTERM, "SIGTERM"},
                                      {SIGUSR1, "SIGUSR1"},
                                      {SIGUSR2, "SIGUSR2"},
                                      {SIGINT, "SIGINT"},
                                      {SIGHUP, "SIGHUP"}};

// A signal handler reaches only globals, and may write only lock-free atomics.
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> interrupted{0};  // when the first SIGINT came, in milliseconds; 0: none
std::atomic<bool> working{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

// Read by the handlers; written before they are installed.
struct PreemptionHandlerState {
  std::string early_lines[std::size(kSignals)], late_line;  // empty: nothing is printed
  long grace = 0, end_of_job = 0;  // seconds, the second since 1970; 0: not known
  bool saves = false;
  struct sigaction before[std::size(kSignals)], alarm_before;
} prepared;

std::size_t index_of(int number) {
  return std::ranges::find(kSignals, number, &HandledSignal::number) - std::begin(kSignals);
}

// Of a signal before begin_work(): how long the ranks have to connect. mpirun and Slurm end those
// that do not.
constexpr unsigned kSecondsToConnect = 3;

// The handler of SIGALRM.
void end_by_alarm(int) {
  const int number = first_signal;
  const std::string& line = working ? prepared.late_line : prepared.early_lines[index_of(number)];
  end_drawn_line_for_message();
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  _exit(static_cast<int>(code_of_stop(prepared.saves, number)));
}

// `since`: the seconds since the signal.
void end_when_grace_is_over(unsigned since) {
  long left = prepared.grace > 0 ? std::max<long>(prepared.grace - static_cast<long>(since), 1) : 0;
  // If the end of the job is past, its limit was extended and the new end is not known.
  const long of_job = prepared.end_of_job - static_cast<long>(time(nullptr));
  if (of_job > 0) left = left > 0 ? std::min(left, of_job) : of_job;
  if (left > 0) alarm(static_cast<unsigned>(left));
}

// Two within a second are one: a launcher may send it to each process of the job, and one of them
// pass it on.
bool is_second_interrupt() {
  constexpr std::int64_t kSame = 1000;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
  std::int64_t first = 0;
  return !interrupted.compare_exchange_strong(first, now) && now - first >= kSame;
}

void record_signal(int number) {
  const int error = errno;
  int none = 0;
  const bool is_first = first_signal.compare_exchange_strong(none, number);
  if (is_first && working) end_when_grace_is_over(0);
  if (is_first && !working) alarm(kSecondsToConnect);
  if (number == SIGINT && is_second_interrupt()) {
    struct sigaction ends {};
    ends.sa_handler = SIG_DFL;
    sigaction(SIGINT, &ends, nullptr);
    raise(SIGINT);  // delivered when this handler returns
  }
  errno = error;
}

void handle(int number, void (*handler)(int), struct sigaction& before) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // an interrupted write or wait continues
  sigemptyset(&action.sa_mask);
  sigaction(number, nullptr, &before);
  if (before.sa_handler != SIG_IGN || number == SIGALRM) sigaction(number, &action, nullptr);
}

std::string ending(bool saves) {
  return saves ? "; what was saved before is kept\n"
               : "; nothing is saved without --checkpoint-dir\n";
}

}  // namespace

Result<std::optional<SystemClock::time_point>> end_of_job(const EnvMap& environment) {
  constexpr std::int64_t kYear2200 = 7258118400;
  const auto seconds = environment.integer("SLURM_JOB_END_TIME", 0, kYear2200);
  if (!seconds) return seconds.error();
  if (!*seconds) return std::optional<SystemClock::time_point>();
  return std::optional(SystemClock::time_point(std::chrono::seconds(**seconds)));
}

ExitCode code_of_stop(bool saves, int signal) {
  return saves ? ExitCode::kRequeue : code_of_signal(signal);
}

Preemption::Preemption(const PreemptionOptions& options) : options_(options) {
  if (options_.end_of_job && *options_.end_of_job <= SystemClock::now()) {
    options_.end_of_job.reset();
    if (options_.is_reporter && options_.before_end)
      print_message(
          "the end of the job is past: its time limit was extended and the new end is not known; "
          "--stop-before-limit has no effect");
  }
  first_signal = 0;
  interrupted = 0;
  working = false;
  prepared.saves = options.saves;
  prepared.grace = options.grace ? std::max<std::int64_t>(options.grace->count(), 1) : 0;
  prepared.end_of_job = options_.end_of_job ? SystemClock::to_time_t(*options_.end_of_job) : 0;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    const std::string name = kSignals[i].name;
    prepared.early_lines[i] =
        options.is_reporter ? formatted("{}: {}: stopped before the process group was formed{}",
                                        program_name(), name, ending(options.saves))
                            : "";
  }
  prepared.late_line =
      options.is_reporter
          ? formatted("{}: the grace time after the signal ended before the run had stopped{}",
                      program_name(), ending(options.saves))
          : "";
  handle(SIGALRM, end_by_alarm, prepared.alarm_before);
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    handle(kSignals[i].number, record_signal, prepared.before[i]);
}

void Preemption::complete() {
  for (const HandledSignal& handled : kSignals) ::signal(handled.number, SIG_IGN);
  alarm(0);
  restores_handlers_ = false;
}

void Preemption::stopped() { restores_handlers_ = false; }

Preemption::~Preemption() {
  if (!restores_handlers_) return;
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    sigaction(kSignals[i].number, &prepared.before[i], nullptr);
  alarm(0);
  sigaction(SIGALRM, &prepared.alarm_before, nullptr);
}

void Preemption::begin_work() {
  ignore_unless_handled(SIGPIPE);
  ignore_unless_handled(SIGXFSZ);
  working = true;
  if (first_signal == 0) return;
  end_when_grace_is_over(kSecondsToConnect - alarm(0));
}

bool Preemption::requested() const {
  if (first_signal != 0) return true;
  return options_.before_end && options_.end_of_job &&
         SystemClock::now() >= *options_.end_of_job - *options_.before_end;
}

int Preemption::signal() const { return first_signal; }

std::string Preemption::reason() const {
  const int number = first_signal;
  if (number != 0) return kSignals[index_of(number)].name;
  if (!requested()) return "";
  const auto left =
      std::chrono::duration_cast<std::chrono::seconds>(*options_.end_of_job - SystemClock::now());
  return formatted("the job ends in {} s", std::max<std::int64_t>(left.count(), 0));
}

}  // namespace torchbridge::train
