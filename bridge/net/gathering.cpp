#include <torchbridge/net/gathering.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <optional>

#include <torchbridge/core/env_map.h>
#include <torchbridge/net/address.h>
#include <torchbridge/net/did_not_come.h>
#include <torchbridge/net/many_descriptors.h>
#include <torchbridge/net/name_resolver.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/net/values.h>

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxHeader = 128;
constexpr std::size_t kMaxValue = 512;  // of one rank, with its lengths
constexpr int kCallsAtOnce = 64;        // that have not connected yet
// Other places are called one after the other, so that a large job does not call all its nodes when the first place suffices.
constexpr milliseconds kFirstOther{5}, kNextOther{1}, kNextPort{50};
constexpr milliseconds kFirstPause{2}, kLongestPause{100}, kLongestPauseOfOthers{1000};
constexpr milliseconds kConnectLimit{3000};
constexpr milliseconds kGrace{1000};  // a listener says at the timeout who is missing: that is waited for

// "torchbridge KIND PROOF LENGTH\nBODY"
struct Message {
  std::string kind, body;
};

class Language {
 public:
  explicit Language(const Gathering& gathering)
      : secret_(gathering.secret), job_(gathering.job), longest_(kMaxValue * static_cast<std::size_t>(gathering.world_size)) {}

  std::string written(const std::string& kind, const std::string& body) const {
    return "torchbridge " + kind + " " + proof(kind, body) + " " + std::to_string(body.size()) + "\n" + body;
  }

  // Takes the first message from `received`: kind is empty as long as it is not complete. Nothing for anything else.
  std::optional<Message> read(std::string& received) const {
    const auto newline = received.find('\n');
    if (newline == received.npos) return received.size() > kMaxHeader ? std::nullopt : std::optional(Message{});
    char kind[16], tag[24], length[24];
    if (newline > kMaxHeader || std::sscanf(received.c_str(), "torchbridge %15s %23s %23s\n", kind, tag, length) != 3) return std::nullopt;
    const auto size = parse_integer(length, 0, static_cast<std::int64_t>(longest_));
    if (!size) return std::nullopt;
    if (received.size() - newline - 1 < static_cast<std::size_t>(*size)) return Message{};
    Message message{kind, received.substr(newline + 1, *size)};
    if (proof(message.kind, message.body) != tag) return std::nullopt;
    received.erase(0, newline + 1 + *size);
    return message;
  }

  std::size_t longest() const { return longest_ + kMaxHeader; }

 private:
  std::string proof(const std::string& kind, const std::string& body) const {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(siphash(secret_, job_ + "\n" + kind + "\n" + body)));
    return text;
  }

  SipKey secret_;
  std::string job_;
  std::size_t longest_;
};

struct Peer {
  Socket socket;
  std::string received;
};

// What has come so far; false when the other end hung up, or says more than there can be to say.
bool receive(Peer& peer, std::size_t longest) {
  char bytes[16 * 1024];
  while (peer.received.size() <= longest) {
    const ssize_t size = recv(peer.socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) {
      peer.received.append(bytes, static_cast<std::size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      return size < 0 && errno == EAGAIN;
    }
  }
  return false;
}

bool send_all(const Socket& socket, std::string_view text) {
  const auto deadline = Clock::now() + kGrace;
  while (!text.empty()) {
    const ssize_t size = send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) {
      text.remove_prefix(static_cast<std::size_t>(size));
    } else if (size < 0 && errno == EAGAIN) {
      pollfd ready{socket.descriptor(), POLLOUT, 0};
      poll(&ready, 1, 10);
      if (Clock::now() >= deadline) return false;
    } else if (size == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// A place and port where there may be a listener.
struct Call {
  enum class State { kIdle, kConnecting, kConnected, kAnswered };

  std::string place;
  int port;
  bool to_first_place;
  Clock::time_point due;  // of kIdle: when it is tried
  State state = State::kIdle;
  milliseconds pause = kFirstPause;
  Clock::time_point since{};  // of kConnecting
  Peer peer{};

  void retry_later(Clock::time_point now) {
    peer = Peer();
    state = State::kIdle;
    due = now + pause;
    pause = std::min(2 * pause, to_first_place ? kLongestPause : kLongestPauseOfOthers);
  }
  bool in_use() const { return state != State::kIdle; }
};

class Gatherer {
 public:
  Gatherer(const Gathering& gathering, const std::map<int, std::string>& own)
      : gathering_(gathering), language_(gathering), values_(gathering.world_size), came_(gathering.world_size), start_(Clock::now()) {
    std::vector<std::string> values;
    for (const auto& [rank, value] : own) {
      values_[rank] = value;
      came_[rank] = true;
      values.insert(values.end(), {std::to_string(rank), value});
    }
    call_ = language_.written("call", join_values(values));
    plan_calls();
  }

  Result<Gathered> run() {
    if (const auto listening = listen(); !listening) return listening.error();
    while (!complete()) {
      const auto now = Clock::now();
      if (now >= deadline()) return give_up(unanswered());
      if (!heard_ && now >= start_ + gathering_.patience) return Gathered{{}, whom()};
      begin_calls(now);
      wait(now);
      if (verdict_) return give_up(*verdict_);
    }
    answer(language_.written("table", join_values(values_)));
    return Gathered{std::move(values_), {}};
  }

 private:
  void plan_calls() {
    for (std::size_t p = 0; p < gathering_.ports.size(); ++p) {
      const auto start = start_ + p * kNextPort;
      for (const auto& place : gathering_.first_places) calls_.push_back({place, gathering_.ports[p], true, start});
      auto due = start + kFirstOther;
      for (const auto& place : gathering_.other_places) {
        calls_.push_back({place, gathering_.ports[p], false, due});
        due += kNextOther;
      }
    }
  }

  Status listen() {
    if (!gathering_.listens) return Ok{};
    Result<Socket> socket = Error{"no port to listen on"};
    for (const int port : gathering_.ports) {
      for (const char* everywhere : {"::", "0.0.0.0"}) {
        socket = listen_on({everywhere, port});
        if (!socket) continue;
        listener_ = std::move(*socket);
        fcntl(listener_.descriptor(), F_SETFL, fcntl(listener_.descriptor(), F_GETFL) | O_NONBLOCK);
        return Ok{};
      }
    }
    return socket.error();
  }

  bool complete() const { return std::find(came_.begin(), came_.end(), false) == came_.end(); }

  const Call* answered() const {
    const auto call = std::find_if(calls_.begin(), calls_.end(), [](const Call& c) { return c.state == Call::State::kAnswered; });
    return call == calls_.end() ? nullptr : &*call;
  }

  Clock::time_point deadline() const { return start_ + gathering_.timeout + (answered() != nullptr ? kGrace : milliseconds(0)); }

  // A node that answered at a first place needs no other; one at another place may itself be waiting for a first place.
  bool superfluous(const Call& call) const {
    const Call* best = nullptr;
    for (const Call& other : calls_) {
      if (other.state == Call::State::kAnswered && (best == nullptr || other.to_first_place)) best = &other;
    }
    return best != nullptr && &call != best && (best->to_first_place || !call.to_first_place);
  }

  void begin_calls(Clock::time_point now) {
    const auto connecting = [](const Call& call) { return call.state == Call::State::kConnecting; };
    auto free = kCallsAtOnce - std::count_if(calls_.begin(), calls_.end(), connecting);
    const bool some_answer = answered() != nullptr;
    for (Call& call : calls_) {
      if (free <= 0) break;
      if (call.in_use() || call.due > now || (some_answer && superfluous(call))) continue;
      const auto address = address_of(call.place);
      if (!address) continue;
      auto socket = *address ? begin_connecting({**address, call.port}) : Result<Socket>(address->error());
      if (!socket) {
        call.retry_later(now);
        continue;
      }
      call.peer.socket = std::move(*socket);
      call.state = Call::State::kConnecting;
      call.since = now;
      --free;
    }
  }

  // Nothing as long as a name is being looked up. Where the first calls succeed, none is.
  std::optional<Result<std::string>> address_of(const std::string& place) {
    if (is_numeric(place)) return place;
    if (!looking_up_) {
      std::vector<std::string> names;
      for (const auto* places : {&gathering_.first_places, &gathering_.other_places}) {
        std::copy_if(places->begin(), places->end(), std::back_inserter(names), [](const auto& name) { return !is_numeric(name); });
      }
      resolver_.start(std::move(names));
      looking_up_ = true;
    }
    return resolver_.find(place);
  }

  // Milliseconds until something is to be done, whatever happens on the sockets.
  int pause(Clock::time_point now) const {
    auto next = deadline();
    if (!heard_) next = std::min(next, start_ + gathering_.patience);
    for (const Call& call : calls_) {
      if (call.state == Call::State::kConnecting) next = std::min(next, call.since + kConnectLimit);
      // One that is due by now waits for its address, or for a free place among those that connect.
      if (call.state == Call::State::kIdle && call.due > now) next = std::min(next, call.due);
    }
    return static_cast<int>(std::max<std::int64_t>(std::chrono::ceil<milliseconds>(next - now).count(), 0));
  }

  void wait(Clock::time_point now) {
    std::vector<pollfd> sockets = {{resolver_.news(), POLLIN, 0}};
    if (listener_.open()) sockets.push_back({listener_.descriptor(), POLLIN, 0});
    for (const Peer& caller : callers_) sockets.push_back({caller.socket.descriptor(), POLLIN, 0});
    for (const Call& call : calls_) {
      const short events = call.state == Call::State::kConnecting ? POLLOUT : POLLIN;
      if (call.in_use()) sockets.push_back({call.peer.socket.descriptor(), events, 0});
    }
    poll(sockets.data(), sockets.size(), pause(now));

    auto ready = sockets.begin();
    if ((ready++)->revents != 0) resolver_.clear_news();
    const bool somebody_calls = listener_.open() && (ready++)->revents != 0;
    std::vector<Peer> staying;
    for (Peer& caller : callers_) {
      if ((ready++)->revents == 0 || listen_to(caller)) staying.push_back(std::move(caller));
    }
    callers_ = std::move(staying);
    const auto later = Clock::now();
    for (Call& call : calls_) {
      if (call.in_use()) go_on(call, (ready++)->revents != 0, later);
    }
    hang_up_superfluous();
    if (somebody_calls) accept_callers();
  }

  void accept_callers() {
    while (true) {
      Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) return;
      callers_.push_back({std::move(socket), {}});
    }
  }

  // False when the caller is to be forgotten.
  bool listen_to(Peer& caller) {
    const bool stays = receive(caller, language_.longest());
    const auto message = language_.read(caller.received);
    if (!message || message->kind.empty()) return message && stays;
    if (message->kind != "call" || !take(split_values(message->body))) return false;
    heard_ = true;
    accepted_.push_back(std::move(caller));
    send_all(accepted_.back().socket, language_.written("here", ""));
    return false;
  }

  // A node may call at two addresses of this one. A rank that says something else than before has come for the next gathering,
  // and will try again when this one is over.
  bool take(const std::vector<std::string>& call) {
    std::map<int, const std::string*> news;
    for (std::size_t i = 0; i + 1 < call.size(); i += 2) {
      const auto rank = parse_integer(call[i], 0, gathering_.world_size - 1);
      if (!rank || (came_[*rank] && values_[*rank] != call[i + 1])) return false;
      news[static_cast<int>(*rank)] = &call[i + 1];
    }
    for (const auto& [rank, value] : news) {
      values_[rank] = *value;
      came_[rank] = true;
    }
    return !news.empty();
  }

  void go_on(Call& call, bool ready, Clock::time_point now) {
    if (call.state == Call::State::kConnecting) {
      const bool too_long = now >= call.since + kConnectLimit;
      if (!ready && !too_long) return;
      if (!ready || !connected(call.peer.socket, {call.place, call.port}) || !send_all(call.peer.socket, call_)) return call.retry_later(now);
      call.state = Call::State::kConnected;
      return;
    }
    if (!ready) return;
    const bool stays = receive(call.peer, language_.longest());
    while (true) {
      const auto message = language_.read(call.peer.received);
      if (!message || (message->kind.empty() && !stays)) return call.retry_later(now);
      if (message->kind.empty()) return;
      understand(call, *message);
    }
  }

  void understand(Call& call, const Message& message) {
    if (message.kind == "here") {
      heard_ = true;
      call.state = Call::State::kAnswered;
    } else if (message.kind == "error") {
      verdict_ = message.body;
    } else if (message.kind == "table") {
      auto values = split_values(message.body);
      if (values.size() != values_.size()) return;
      values_ = std::move(values);
      came_.assign(came_.size(), true);
    }
  }

  void hang_up_superfluous() {
    if (answered() == nullptr) return;
    for (Call& call : calls_) {
      if (call.in_use() && superfluous(call)) call.retry_later(Clock::now());
    }
  }

  void answer(const std::string& text) {
    for (const Peer& caller : accepted_) send_all(caller.socket, text);
    accepted_.clear();
  }

  Error give_up(std::string why) {
    if (!gathering_.provisional) answer(language_.written("error", why));
    return {std::move(why)};
  }

  std::string unanswered() const {
    if (gathering_.listens) return did_not_come(came_, gathering_.timeout).message;
    const Call* call = answered();
    if (call == nullptr) return whom();
    return call->place + " port " + std::to_string(call->port) + ", where the nodes of this job meet, gave no answer within " +
           seconds(gathering_.timeout);
  }

  std::string whom() const {
    std::string text = "no other node of this job was heard of within " + seconds(std::min(gathering_.patience, gathering_.timeout));
    std::string places;
    constexpr std::size_t kShown = 4;
    for (std::size_t i = 0; i < calls_.size() / gathering_.ports.size() && i < kShown; ++i) {
      const auto address = resolver_.find(calls_[i].place);
      const bool unknown = address && !*address;
      places += (i == 0 ? "" : ", ") + calls_[i].place + (unknown ? " (has no address)" : "");
    }
    if (!places.empty()) text += " at " + places;
    return text + ", port " + std::to_string(gathering_.ports.front());
  }

  const Gathering& gathering_;
  const Language language_;
  std::vector<std::string> values_;
  std::vector<bool> came_;
  const Clock::time_point start_;
  std::string call_;
  ManyDescriptors many_descriptors_;
  Socket listener_;
  std::vector<Peer> callers_, accepted_;
  std::vector<Call> calls_;
  NameResolver resolver_;
  bool looking_up_ = false;
  bool heard_ = false;
  std::optional<std::string> verdict_;  // of a listener that gave up
};

}  // namespace

Result<Gathered> gather(const Gathering& gathering, const std::map<int, std::string>& own) { return Gatherer(gathering, own).run(); }

}  // namespace torchbridge
