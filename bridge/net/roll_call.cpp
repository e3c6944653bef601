#include <torchbridge/net/roll_call.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <torchbridge/core/env_map.h>

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kGreeting[] = "torchbridge-roll";
constexpr std::size_t kMaxHeader = 512;
constexpr milliseconds kFirstPause{1}, kLongestPause{20};
constexpr milliseconds kAnswerGrace{2000};

// For poll(): what is left until the deadline, in milliseconds, 0 after it.
int left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

// One connection from which a call is being read.
struct Caller {
  Socket socket;
  std::string received;
};

enum class Reading { kMore, kComplete, kBroken };

Reading read_some(Caller& caller) {
  char bytes[4096];
  const ssize_t size = recv(caller.socket.descriptor(), bytes, sizeof bytes, 0);
  if (size == 0) return Reading::kComplete;
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Reading::kMore : Reading::kBroken;
  caller.received.append(bytes, static_cast<std::size_t>(size));
  return caller.received.size() > kMaxHeader + kMaxRollText ? Reading::kBroken : Reading::kMore;
}

struct Call {
  int node;
  std::string text;
};

// "torchbridge-roll TOKEN NODE\nTEXT", or nothing for anything else.
std::optional<Call> parse_call(const std::string& received, const RollCall& roll) {
  const auto newline = received.find('\n');
  const std::string expected = std::string(kGreeting) + " " + roll.token + " ";
  if (newline == std::string::npos || !received.starts_with(expected)) return std::nullopt;
  const auto number = std::string_view(received).substr(expected.size(), newline - expected.size());
  const auto node = parse_integer(number, 0, static_cast<std::int64_t>(roll.nodes.size()) - 1);
  if (!node || *node == roll.master) return std::nullopt;
  return Call{static_cast<int>(*node), received.substr(newline + 1)};
}

std::string missing_nodes(const RollCall& roll, const std::vector<bool>& called) {
  constexpr int kShown = 8;
  std::string names;
  int count = 0;
  for (std::size_t node = 0; node < roll.nodes.size(); ++node) {
    if (called[node] || static_cast<int>(node) == roll.master) continue;
    if (++count <= kShown) names += (count == 1 ? "" : ", ") + roll.nodes[node];
  }
  return names + (count > kShown ? " and " + std::to_string(count - kShown) + " more" : "");
}

Error no_word_from(const RollCall& roll, const std::vector<bool>& called) {
  return {"no word within " + std::to_string(roll.timeout.count()) + " ms from " + missing_nodes(roll, called) + ": is " +
          roll.nodes[roll.master] + " reachable from there?"};
}

void accept_callers(const Socket& listener, std::vector<Caller>& callers) {
  while (true) {
    Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) return;
    callers.push_back({std::move(socket), {}});
  }
}

bool send_all(const Socket& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return true;
}

// The answer, or nothing when the connection broke before one came.
std::optional<std::string> receive_answer(const Socket& socket, Clock::time_point deadline) {
  Caller reader{Socket(fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 0)), {}};
  while (true) {
    pollfd ready{reader.socket.descriptor(), POLLIN, 0};
    const int count = poll(&ready, 1, left_until(deadline));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    const Reading state = read_some(reader);
    if (state == Reading::kComplete && !reader.received.empty()) return reader.received;
    if (state != Reading::kMore) return std::nullopt;
  }
}

}  // namespace

Result<Roll> Roll::take(const Socket& listener, const RollCall& roll) {
  const auto deadline = Clock::now() + roll.timeout, notice = Clock::now() + roll.patience;
  bool told = !roll.missing;
  fcntl(listener.descriptor(), F_SETFL, fcntl(listener.descriptor(), F_GETFL) | O_NONBLOCK);
  Roll taken;
  taken.texts_.resize(roll.nodes.size());
  std::vector<bool> called(roll.nodes.size(), false);
  std::vector<Caller> callers;
  while (taken.callers_.size() + 1 < roll.nodes.size()) {
    std::vector<pollfd> waiting = {{listener.descriptor(), POLLIN, 0}};
    for (const auto& caller : callers) waiting.push_back({caller.socket.descriptor(), POLLIN, 0});
    const int count = poll(waiting.data(), waiting.size(), left_until(told ? deadline : std::min(deadline, notice)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 && !told && Clock::now() < deadline) {
      roll.missing(missing_nodes(roll, called));
      told = true;
      continue;
    }
    if (count <= 0) {
      taken.answer(kRollIncomplete);
      return no_word_from(roll, called);
    }

    std::vector<Caller> unfinished;
    for (std::size_t i = 0; i < callers.size(); ++i) {
      const Reading state = waiting[i + 1].revents == 0 ? Reading::kMore : read_some(callers[i]);
      if (state == Reading::kMore) unfinished.push_back(std::move(callers[i]));
      if (state != Reading::kComplete) continue;
      auto call = parse_call(callers[i].received, roll);
      if (!call || called[call->node]) continue;
      called[call->node] = true;
      taken.texts_[call->node] = std::move(call->text);
      taken.callers_.push_back(std::move(callers[i].socket));
    }
    callers = std::move(unfinished);
    if (waiting[0].revents != 0) accept_callers(listener, callers);
  }
  return taken;
}

void Roll::answer(const std::string& text) {
  for (const Socket& caller : callers_) send_all(caller, text);
  callers_.clear();
}

Result<std::string> answer_roll(const Endpoint& at, const RollCall& roll, int node, const std::string& text) {
  const auto deadline = Clock::now() + roll.timeout;
  const std::string message =
      std::string(kGreeting) + " " + roll.token + " " + std::to_string(node) + "\n" + text.substr(0, kMaxRollText);
  const auto notice = Clock::now() + roll.patience;
  bool told = !roll.missing;
  milliseconds pause = kFirstPause;
  std::string reason;
  while (Clock::now() < deadline) {
    if (!told && Clock::now() >= notice) {
      roll.missing(roll.nodes[roll.master]);
      told = true;
    }
    const auto socket = connect_to(at, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
    if (!socket) {
      reason = socket.error().message;
    } else if (send_all(*socket, message)) {
      shutdown(socket->descriptor(), SHUT_WR);
      if (auto answer = receive_answer(*socket, deadline + kAnswerGrace)) return *answer;
      reason = at.host + " port " + std::to_string(at.port) + " accepts the connection, but does not answer";
    }
    poll(nullptr, 0, std::min<int>(static_cast<int>(pause.count()), left_until(deadline)));
    pause = std::min(2 * pause, kLongestPause);
  }
  return Error{"node " + roll.nodes[node] + " does not reach " + roll.what_master_is + ", " + roll.nodes[roll.master] + ": " + reason};
}

}  // namespace torchbridge
