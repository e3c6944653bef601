#include "bridge/supervision/agent_events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

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

// The guardian and a launcher may both send one SIGINT; a second one of the same sender is a user's.
constexpr std::chrono::milliseconds kSameInterrupt{200};

int milliseconds_until(SteadyTime deadline) {
  if (deadline == SteadyTime::max()) return -1;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 3600 * 1000));
}

}  // namespace

Result<AgentEvents> AgentEvents::open(const std::vector<int>& stop_signals, int guardian, Socket liveness) {
  const std::vector<int> stop = without_ignored(stop_signals);
  std::vector<int> all = stop;
  all.insert(all.end(), std::begin(kPassed), std::end(kPassed));
  all.push_back(SIGCHLD);
  all.push_back(SIGTTOU);  // the agent is in the terminal's background: with `stty tostop` its lines would stop it
  auto signals = SignalDescriptor::open(all);
  if (!signals) return signals.error();
  if (liveness.open()) {
    fcntl(liveness.descriptor(), F_SETFL, fcntl(liveness.descriptor(), F_GETFL) | O_NONBLOCK);
  }
  return AgentEvents(std::move(*signals), stop, guardian, std::move(liveness));
}

AgentEvents::AgentEvents(SignalDescriptor signals, std::vector<int> stop_signals, int guardian, Socket liveness)
    : signals_(std::move(signals)),
      stop_signals_(std::move(stop_signals)),
      guardian_(guardian),
      liveness_(std::move(liveness)) {}

void AgentEvents::read_signals(Events& events) {
  while (const auto signal = signals_.next()) {
    const int number = static_cast<int>(signal->ssi_signo);
    const auto now = std::chrono::steady_clock::now();
    if (number == SIGCHLD) {
      events.has_child = true;
    } else if (std::find(stop_signals_.begin(), stop_signals_.end(), number) == stop_signals_.end()) {
      events.passed_signals.push_back(number);
    } else if (number != SIGINT || !interrupted_ || interrupted_->sender == signal->ssi_pid ||
               now - interrupted_->time > kSameInterrupt) {
      events.stop_signals.push_back(number);
      if (number == SIGINT) interrupted_ = {now, signal->ssi_pid};
    }
  }
}

void AgentEvents::answer_liveness() const {
  const Socket peer(accept4(liveness_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!peer.open()) return;
  constexpr std::string_view kAnswer = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
  (void)send(peer.descriptor(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
  shutdown(peer.descriptor(), SHUT_WR);
  char request[4096];  // a connection that is closed with unread bytes is reset, and the answer lost
  (void)!read(peer.descriptor(), request, sizeof request);
}

Events AgentEvents::wait(SteadyTime deadline, WorkerStreams* streams, Consoles& consoles) {
  std::vector<pollfd> entries = {{signals_.descriptor(), POLLIN, 0},
                                 {guardian_, POLLIN, 0},
                                 {liveness_.descriptor(), POLLIN, 0},
                                 consoles.out.poll_entry(),
                                 consoles.err.poll_entry()};
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
  // A console without pending output would report its reader's end each time.
  for (std::size_t i = 3; i < fixed; ++i) {
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
  consoles.out.flush();
  consoles.err.flush();
  if (streams) streams->drop_ended();
  return events;
}

}  // namespace torchbridge
