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
#include <torchbridge/net/address.h>

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kGreeting[] = "torchbridge-roll";
constexpr std::size_t kMaxHeader = 512;
constexpr milliseconds kFirstPause{1}, kLongestPause{20};
constexpr milliseconds kFirstPauseElsewhere{50}, kLongestPauseElsewhere{1000};
constexpr milliseconds kAnswerGrace{2000};

// For poll(): what is left until the deadline, in milliseconds, 0 after it.
int left_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

// One connection from which a call, or the answer to one, is being read.
struct Peer {
  Socket socket;
  std::string received;
};

enum class Reading { kMore, kComplete, kBroken };

Reading read_some(Peer& peer) {
  char bytes[4096];
  const ssize_t size = recv(peer.socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (size == 0) return Reading::kComplete;
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Reading::kMore : Reading::kBroken;
  peer.received.append(bytes, static_cast<std::size_t>(size));
  return peer.received.size() > kMaxHeader + kMaxRollText ? Reading::kBroken : Reading::kMore;
}

struct Call {
  int node;
  std::string text;
};

// What the master says at once to a call of its run, before the answer.
std::string acknowledgement_of(const RollCall& roll) { return std::string(kGreeting) + " " + roll.token + "\n"; }

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

void accept_callers(const Socket& listener, std::vector<Peer>& callers) {
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

// One place where the master may be: called when `due`, and again while it is not the master that answers there.
class Place {
 public:
  Place(Endpoint at, milliseconds pause, milliseconds longest_pause, Clock::time_point due)
      : at_(std::move(at)), pause_(pause), longest_pause_(longest_pause), due_(due) {}

  bool in_use() const { return peer_.socket.open(); }
  Clock::time_point due() const { return due_; }
  pollfd awaited() const { return {peer_.socket.descriptor(), static_cast<short>(connected_ ? POLLIN : POLLOUT), 0}; }
  bool is_acknowledged(const std::string& acknowledgement) const { return in_use() && peer_.received.starts_with(acknowledgement); }

  void forget() {
    peer_ = {};
    due_ = Clock::time_point::max();
  }

  void call(Clock::time_point now) {
    auto socket = begin_connecting(at_);
    if (!socket) return retry_later(now, socket.error().message);
    peer_ = {std::move(*socket), {}};
    connected_ = false;
  }

  // Once the socket is ready: the answer when it is complete.
  std::optional<std::string> go_on(const std::string& message, const std::string& acknowledgement, Clock::time_point now) {
    if (!connected_) {
      say(message, now);
      return std::nullopt;
    }
    const Reading state = read_some(peer_);
    const auto& received = peer_.received;
    const auto common = std::min(received.size(), acknowledgement.size());
    if (state == Reading::kComplete && received.size() > acknowledgement.size() && received.starts_with(acknowledgement)) {
      return received.substr(acknowledgement.size());
    }
    const bool is_stranger = received.compare(0, common, acknowledgement, 0, common) != 0;
    if (is_stranger || state != Reading::kMore) retry_later(now, no_answer());
    return std::nullopt;
  }

  // What stood in the way.
  std::string reason() const {
    if (!in_use()) return reason_;
    return connected_ ? no_answer() : cannot_connect(at_, ETIMEDOUT).message;
  }

 private:
  void say(const std::string& message, Clock::time_point now) {
    if (const auto reached = connected(peer_.socket, at_); !reached) return retry_later(now, reached.error().message);
    fcntl(peer_.socket.descriptor(), F_SETFL, fcntl(peer_.socket.descriptor(), F_GETFL) & ~O_NONBLOCK);
    if (!send_all(peer_.socket, message)) return retry_later(now, no_answer());
    shutdown(peer_.socket.descriptor(), SHUT_WR);
    connected_ = true;
  }

  void retry_later(Clock::time_point now, std::string reason) {
    peer_ = {};
    reason_ = std::move(reason);
    due_ = now + pause_;
    pause_ = std::min(2 * pause_, longest_pause_);
  }

  std::string no_answer() const {
    return at_.host + " port " + std::to_string(at_.port) + " accepts the connection, but does not answer";
  }

  Endpoint at_;
  milliseconds pause_, longest_pause_;
  Clock::time_point due_;
  Peer peer_{};
  bool connected_ = false;  // and the call is said
  std::string reason_;
};

// Calls the places where the master may be until one of them answers as the master.
class RollAnswer {
 public:
  RollAnswer(const Endpoint& at, const RollCall& roll, int node, const std::string& text)
      : roll_(roll),
        node_(node),
        acknowledgement_(acknowledgement_of(roll)),
        message_(acknowledgement_),
        told_(!roll.missing),
        looked_elsewhere_(!roll.elsewhere) {
    message_.back() = ' ';
    message_.append(std::to_string(node)).append("\n").append(text, 0, kMaxRollText);
    places_.emplace_back(at, kFirstPause, kLongestPause, start_);
  }

  Result<std::string> run() {
    for (auto now = start_; now < deadline(); now = Clock::now()) {
      tell_patience(now);
      look_elsewhere(now);
      if (auto answer = wait(now)) return *answer;
      hang_up_on_strangers();
    }
    return Error{"node " + roll_.nodes[node_] + " does not reach " + roll_.what_master_is + ", " + roll_.nodes[roll_.master] + ": " +
                 places_.front().reason()};
  }

 private:
  Clock::time_point deadline() const { return start_ + roll_.timeout + (acknowledged_ ? kAnswerGrace : milliseconds(0)); }
  Clock::time_point notice() const { return start_ + roll_.patience; }

  void tell_patience(Clock::time_point now) {
    if (told_ || now < notice()) return;
    roll_.missing(roll_.nodes[roll_.master]);
    told_ = true;
  }

  void look_elsewhere(Clock::time_point now) {
    if (acknowledged_ || looked_elsewhere_ || now < start_ + kFirstPauseElsewhere) return;
    for (auto& place : roll_.elsewhere()) places_.emplace_back(std::move(place), kFirstPauseElsewhere, kLongestPauseElsewhere, now);
    looked_elsewhere_ = true;
  }

  std::optional<std::string> wait(Clock::time_point now) {
    auto next = deadline();
    if (!told_) next = std::min(next, notice());
    if (!acknowledged_ && !looked_elsewhere_) next = std::min(next, start_ + kFirstPauseElsewhere);
    std::vector<pollfd> sockets;
    for (Place& place : places_) {
      if (!place.in_use() && place.due() <= now) place.call(now);
      if (!place.in_use()) next = std::min(next, place.due());
      sockets.push_back(place.awaited());
    }
    poll(sockets.data(), sockets.size(), left_until(next));
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (sockets[i].revents == 0) continue;
      if (auto answer = places_[i].go_on(message_, acknowledgement_, Clock::now())) return answer;
    }
    return std::nullopt;
  }

  // Once the master is found, nobody else is called.
  void hang_up_on_strangers() {
    acknowledged_ = std::any_of(places_.begin(), places_.end(), [&](const Place& place) { return place.is_acknowledged(acknowledgement_); });
    for (Place& place : places_) {
      if (acknowledged_ && !place.is_acknowledged(acknowledgement_)) place.forget();
    }
  }

  const RollCall& roll_;
  const int node_;
  const std::string acknowledgement_;
  std::string message_;  // the same, with the node and its text
  const Clock::time_point start_ = Clock::now();
  std::vector<Place> places_;
  bool told_, looked_elsewhere_, acknowledged_ = false;
};

}  // namespace

Result<Roll> Roll::take(const Socket& listener, const RollCall& roll) {
  const auto deadline = Clock::now() + roll.timeout, notice = Clock::now() + roll.patience;
  bool told = !roll.missing;
  fcntl(listener.descriptor(), F_SETFL, fcntl(listener.descriptor(), F_GETFL) | O_NONBLOCK);
  Roll taken;
  taken.texts_.resize(roll.nodes.size());
  std::vector<bool> called(roll.nodes.size(), false);
  std::vector<Peer> callers;
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

    std::vector<Peer> unfinished;
    for (std::size_t i = 0; i < callers.size(); ++i) {
      const Reading state = waiting[i + 1].revents == 0 ? Reading::kMore : read_some(callers[i]);
      if (state == Reading::kMore) unfinished.push_back(std::move(callers[i]));
      if (state != Reading::kComplete) continue;
      auto call = parse_call(callers[i].received, roll);
      if (!call || called[call->node]) continue;
      send_all(callers[i].socket, acknowledgement_of(roll));
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

Result<Socket> listen_elsewhere(const RollCall& call) {
  Result<Socket> listener = Error{"the nodes have no other place to meet"};
  for (const auto& place : call.elsewhere ? call.elsewhere() : std::vector<Endpoint>()) {
    if (!hold_port(place.port)) continue;
    listener = listen_on({address_to_listen_on(place.host), place.port});
    if (listener) break;
  }
  return listener;
}

Result<std::string> answer_roll(const Endpoint& at, const RollCall& roll, int node, const std::string& text) {
  return RollAnswer(at, roll, node, text).run();
}

}  // namespace torchbridge
