#include "trainer_template/runtime/training/preemption.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <iterator>

#include "trainer_template/runtime/base/console.h"
#include "trainer_template/runtime/base/ignored_signals.h"

namespace torchbridge::train {
namespace {

using SystemClock = std::chrono::system_clock;

struct HandledSignal {
  int number;
  const char* name;
};
constexpr HandledSignal kSignals[] = {
    {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGINT, "SIGINT"}};

// A signal handler reaches only globals, and may write only lock-free atomics.
std::atomic<int> first_signal{0};
std::atomic<bool> interrupted{false}, working{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Read by the handlers; written before they are installed.
struct PreemptionHandlerState {
  std::string early_lines[std::size(kSignals)], late_line;  // empty: nothing is printed
  long grace = 0, end_of_job = 0;                           // seconds, the second since 1970; 0: not known
  bool saves = false;
  struct sigaction before[std::size(kSignals)], alarm_before;
} prepared;

std::size_t index_of(int number) {
  return std::find_if(std::begin(kSignals), std::end(kSignals),
                      [&](const HandledSignal& handled) { return handled.number == number; }) -
         std::begin(kSignals);
}

// Of a signal before begin_work(): how long the ranks have to connect. mpirun and Slurm end those that do not.
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

void record_signal(int number) {
  const int error = errno;
  int none = 0;
  const bool is_first = first_signal.compare_exchange_strong(none, number);
  if (is_first && working) end_when_grace_is_over(0);
  if (is_first && !working) alarm(kSecondsToConnect);
  if (number == SIGINT && interrupted.exchange(true)) {
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
  return saves ? "; the last checkpoint is kept\n" : "; nothing is saved without --checkpoint-dir\n";
}

}  // namespace

Result<std::optional<SystemClock::time_point>> end_of_job(const EnvMap& environment) {
  constexpr std::int64_t kYear2200 = 7258118400;
  const auto seconds = environment.integer("SLURM_JOB_END_TIME", 0, kYear2200);
  if (!seconds) return seconds.error();
  if (!*seconds) return std::optional<SystemClock::time_point>();
  return std::optional(SystemClock::time_point(std::chrono::seconds(**seconds)));
}

ExitCode code_of_stop(bool saves, int signal) { return saves ? ExitCode::kRequeue : code_of_signal(signal); }

Preemption::Preemption(const PreemptionOptions& options) : options_(options) {
  if (options_.end_of_job && *options_.end_of_job <= SystemClock::now()) {
    options_.end_of_job.reset();
    if (options_.is_reporter && options_.before_end)
      print_message(
          "the end of the job is past: its time limit was extended and the new end is not known; --stop-before-limit "
          "has no effect");
  }
  first_signal = 0;
  interrupted = working = false;
  prepared.saves = options.saves;
  prepared.grace = options.grace ? std::max<std::int64_t>(options.grace->count(), 1) : 0;
  prepared.end_of_job = options_.end_of_job ? SystemClock::to_time_t(*options_.end_of_job) : 0;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    const std::string name = kSignals[i].name;
    prepared.early_lines[i] =
        options.is_reporter
            ? program_name() + ": " + name + ": stopped before the process group was formed" + ending(options.saves)
            : "";
  }
  prepared.late_line = options.is_reporter
                           ? program_name() + ": the grace time after the signal ended before the run had stopped" +
                                 ending(options.saves)
                           : "";
  handle(SIGALRM, end_by_alarm, prepared.alarm_before);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) handle(kSignals[i].number, record_signal, prepared.before[i]);
}

void Preemption::complete() {
  for (const HandledSignal& handled : kSignals) ::signal(handled.number, SIG_IGN);
  alarm(0);
  restores_handlers_ = false;
}

void Preemption::stopped() { restores_handlers_ = false; }

Preemption::~Preemption() {
  if (!restores_handlers_) return;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i].number, &prepared.before[i], nullptr);
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
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(*options_.end_of_job - SystemClock::now());
  return "the job ends in " + std::to_string(std::max<std::int64_t>(left.count(), 0)) + " s";
}

}  // namespace torchbridge::train
