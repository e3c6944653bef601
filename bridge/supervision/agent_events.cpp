#include "bridge/supervision/agent_events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "bridge/supervision/signal_sender.h"

namespace torchbridge {
namespace {

// For the workers alone where --signals-to-handle does not name them.
constexpr int kPassed[] = {SIGUSR1, SIGUSR2};

// Those to handle and the two that always are; not those that nohup or a shell's `trap ""` ignores.
std::vector<int> without_ignored(std::vector<int> signals) {
  signals.insert(signals.end(), {SIGTERM, SIGINT});
  std::erase_if(signals, [](int signal) {
    struct sigaction current {};
    return sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
  });
  return signals;
}

// One that was sent to agent and guardian comes again from the guardian within this time.
constexpr std::chrono::milliseconds kSameSignal = 2 * kSignalSpread;

// `timeout` signals its child and then its group: a ctrl-C that is meant as the next comes later
// than this, as in the trainer.
constexpr std::chrono::seconds kOneInterrupt{1};

int milliseconds_until(SteadyTime deadline) {
  if (deadline == SteadyTime::max()) return -1;
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 3600 * 1000));
}

}  // namespace

Result<AgentEvents> AgentEvents::open(const std::vector<int>& stop_signals, int guardian,
                                      Socket liveness) {
  const std::vector<int> stop = without_ignored(stop_signals);
  std::vector<int> all = stop;
  all.insert(all.end(), std::begin(kPassed), std::end(kPassed));
  all.push_back(SIGCHLD);
  all.push_back(SIGTTOU);  // the agent is in the terminal's background: with `stty tostop` its
                           // lines would stop it
  auto signals = SignalDescriptor::open(all);
  if (!signals) return signals.error();
  if (liveness.open()) {
    fcntl(liveness.descriptor(), F_SETFL, fcntl(liveness.descriptor(), F_GETFL) | O_NONBLOCK);
  }
  return AgentEvents(std::move(*signals), stop, guardian, std::move(liveness));
}

AgentEvents::AgentEvents(SignalDescriptor signals, std::vector<int> stop_signals, int guardian,
                         Socket liveness)
    : signals_(std::move(signals)),
      stop_signals_(std::move(stop_signals)),
      guardian_(guardian),
      liveness_(std::move(liveness)) {}

bool AgentEvents::is_stop_signal(int signal) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
}

bool AgentEvents::has_signal() const {
  pollfd entry{signals_.descriptor(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

// A second one of the same sender is another signal, but for SIGINT.
bool AgentEvents::is_repeated(const signalfd_siginfo& signal) {
  const auto now = std::chrono::steady_clock::now();
  const int number = static_cast<int>(signal.ssi_signo);
  if (const auto last = last_.find(number); last != last_.end()) {
    const auto age = now - last->second.time;
    const bool is_same_sender = last->second.sender == signal.ssi_pid;
    if (number == SIGINT ? age < kOneInterrupt : !is_same_sender && age < kSameSignal) return true;
  }
  last_[number] = {now, signal.ssi_pid};
  return false;
}

void AgentEvents::read_signals(Events& events) {
  while (const auto signal = signals_.next()) {
    const int number = static_cast<int>(signal->ssi_signo);
    if (number == SIGCHLD) {
      events.has_child = true;
    } else if (!is_repeated(*signal)) {
      (is_stop_signal(number) ? events.stop_signals : events.passed_signals)
          .push_back({number, signals_each_process(*signal)});
    }
  }
}

void AgentEvents::answer_liveness() const {
  const Socket peer(
      accept4(liveness_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!peer.open()) return;
  constexpr std::string_view kAnswer =
      "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
  (void)send(peer.descriptor(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
  shutdown(peer.descriptor(), SHUT_WR);
  // A connection that is closed with unread bytes is reset, and the answer lost.
  char request[4096];
  (void)!read(peer.descriptor(), request, sizeof request);
}

Events AgentEvents::wait(SteadyTime deadline, WorkerStreams* streams, Consoles& consoles) {
  std::vector<pollfd> entries = {
      {signals_.descriptor(), POLLIN, 0},  {guardian_, POLLIN, 0},
      {liveness_.descriptor(), POLLIN, 0}, {python_ ? python_->descriptor() : -1, POLLIN, 0},
      consoles.out.poll_entry(),           consoles.err.poll_entry()};
  const std::size_t fixed = entries.size();
  if (streams) {
    for (const auto& relay : streams->relays()) {
      entries.push_back({relay->waits_for_console() ? -1 : relay->source(), POLLIN, 0});
    }
  }
  const std::size_t own = entries.size();
  if (peers_) {
    const auto theirs = peers_->poll_entries();
    entries.insert(entries.end(), theirs.begin(), theirs.end());
    deadline = std::min(deadline, peers_->next_deadline());
  }
  if (python_) deadline = std::min(deadline, python_->next_deadline());
  // A console without pending output would report its reader's end each time.
  for (std::size_t i = 4; i < fixed; ++i) {
    if (entries[i].events == 0) entries[i].fd = -1;
  }
  poll(entries.data(), entries.size(), milliseconds_until(deadline));
  Events events;
  if (entries[0].revents != 0) read_signals(events);
  events.is_guardian_gone = entries[1].revents != 0;
  if (events.is_guardian_gone) guardian_ = -1;
  if (entries[2].revents != 0) answer_liveness();
  for (std::size_t i = fixed; i < own; ++i) {
    if (entries[i].revents != 0) streams->relays()[i - fixed]->carry();
  }
  if (peers_) peers_->carry();
  if (python_) python_->carry();
  consoles.out.flush();
  consoles.err.flush();
  if (streams) streams->drop_ended();
  return events;
}

}  // namespace torchbridge
