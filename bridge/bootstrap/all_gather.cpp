#include "bridge/bootstrap/all_gather.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "bridge/base/env_map.h"
#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/bootstrap/packed_values.h"
#include "bridge/net/address.h"
#include "bridge/net/name_resolver.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kMaxHeader = 128;
constexpr std::size_t kMaxValue = 1024;  // of one rank, with its lengths
constexpr int kCallsAtOnce = 64;         // that have not connected yet
// Other places are called one after the other, so that a large job does not call all its nodes when
// the first place suffices.
constexpr microseconds kFirstOther{5000}, kNextOther{1000};
constexpr microseconds kFirstPause{2000}, kLongestPause{2'000'000};
constexpr microseconds kFirstPauseOnNode{200}, kLongestPauseOnNode{20'000};  // nobody else is disturbed
constexpr milliseconds kConnectLimit{3000}, kAcknowledgeLimit{1000};
constexpr const char* kNoAnswer = "the program that listens there does not belong to this job";
constexpr milliseconds kGrace{1000};  // a listener says at the timeout who is missing: that is waited for

// "torchbridge KIND PROOF LENGTH\nBODY"
struct Message {
  std::string kind, body;
};

class Language {
 public:
  explicit Language(const Group& group)
      : secret_(group.secret), job_(group.job), longest_(kMaxValue * static_cast<std::size_t>(group.size)) {}

  std::string written(const std::string& kind, const std::string& body) const {
    return "torchbridge " + kind + " " + proof(kind, body) + " " + std::to_string(body.size()) + "\n" + body;
  }

  // Takes the first message from `received`: kind is empty as long as it is not complete. Nothing
  // for anything else.
  std::optional<Message> read(std::string& received) const {
    const auto newline = received.find('\n');
    if (newline == received.npos) return received.size() > kMaxHeader ? std::nullopt : std::optional(Message{});
    char kind[16], tag[24], length[24];
    if (newline > kMaxHeader || std::sscanf(received.c_str(), "torchbridge %15s %23s %23s\n", kind, tag, length) != 3) {
      return std::nullopt;
    }
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
    const auto proof = siphash(secret_, job_ + "\n" + kind + "\n" + body);
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(proof));
    return text;
  }

  SipKey secret_;
  std::string job_;
  std::size_t longest_;
};

// What has come so far; false when the other end hung up, or says more than there can be to say.
bool receive(const Socket& socket, std::string& received, std::size_t longest) {
  char bytes[16 * 1024];
  while (received.size() <= longest) {
    const ssize_t size = recv(socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) {
      received.append(bytes, static_cast<std::size_t>(size));
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

// A rank of this node, or the first rank of another.
struct Caller {
  Socket socket;
  bool on_this_node;
  std::string received{};
  std::vector<int> ranks{};  // whose values it gave: it is to be answered
};

// A place where there may be a listener, at any of the ports in turn.
struct Call {
  enum class State { kIdle, kConnecting, kConnected, kAnswered };

  std::string place;  // empty: the first rank of this node
  bool is_first_place;
  Clock::time_point due;  // of kIdle: when it is tried
  microseconds pause = kFirstPause, longest_pause = kLongestPause;
  std::size_t port = 0;  // index of the one that is tried next, or that is in use
  State state = State::kIdle;
  Clock::time_point give_up_at{};  // of kConnecting and kConnected: then somebody else is there
  Socket socket{};
  std::string received{};
  std::string reason{};  // of the last failure

  bool in_use() const { return state != State::kIdle; }
  bool is_unanswered() const { return state == State::kConnecting || state == State::kConnected; }
  bool on_this_node() const { return place.empty(); }
};

class Gatherer {
 public:
  Gatherer(const Group& group, const std::string& value, milliseconds timeout, const Reduce& reduce)
      : group_(group),
        timeout_(timeout),
        reduce_(reduce),
        language_(group),
        values_(group.size),
        came_(group.size),
        tellers_(group.size),
        start_(Clock::now()) {
    values_[group.rank] = value;
    came_[group.rank] = true;
    tellers_[group.rank] = 1;
    ranks_here_ = {group.rank};
    plan_calls();
  }

  Result<Gathered> run() {
    if (const auto listening = listen(); !listening) return listening.error();
    watch(resolver_.news(), EPOLLIN);
    while (true) {
      const auto now = Clock::now();
      if (std::find(came_.begin(), came_.end(), false) == came_.end()) return finish();
      if (now >= deadline()) return unanswered();
      if (now >= end_of_patience()) return tell_nobody(whom());
      begin_calls(now);
      wait(now);
      if (outcome_) return std::move(*outcome_);
    }
  }

 private:
  bool is_first_of_node() const { return group_.local_rank == 0; }
  bool is_one_node() const { return group_.local_size == group_.size; }

  void plan_calls() {
    if (!is_first_of_node()) {
      calls_.push_back({{}, true, start_, kFirstPauseOnNode, kLongestPauseOnNode});
      return;
    }
    if (is_one_node()) return;
    for (const auto& place : group_.first_places) calls_.push_back({place, true, start_});
    auto due = start_ + kFirstOther;
    for (const auto& place : group_.other_places) {
      calls_.push_back({place, false, due});
      due += kNextOther;
    }
  }

  void watch(int descriptor, std::uint32_t events, int operation = EPOLL_CTL_ADD) {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    epoll_ctl(events_.descriptor(), operation, descriptor, &event);
  }

  Status listen() {
    if (is_first_of_node() && group_.local_size > 1) {
      if (const auto listening = listen_on_node(); !listening) return listening;
    }
    const bool listens = group_.listens || group_.rank == group_.listening_rank;
    return is_first_of_node() && !is_one_node() && listens ? listen_for_nodes() : Status(Ok{});
  }

  // The name may still be taken by the gathering before this one.
  Status listen_on_node() {
    auto pause = kFirstPauseOnNode;
    auto listener = listen_on_name(group_.node_key);
    while (!listener && Clock::now() < start_ + timeout_) {
      poll(nullptr, 0, static_cast<int>(std::chrono::ceil<milliseconds>(pause).count()));
      pause = std::min(2 * pause, kLongestPauseOnNode);
      listener = listen_on_name(group_.node_key);
    }
    if (!listener) return Error{"cannot listen for the other ranks of this node: " + listener.error().message};
    node_listener_ = std::move(*listener);
    watch(node_listener_.descriptor(), EPOLLIN);
    return Ok{};
  }

  Status listen_for_nodes() {
    for (Call& call : calls_) {
      if (call.is_first_place) continue;
      if (call.in_use()) retry_later(call, start_, "");
      call.due = Clock::time_point::max();
    }
    Result<Socket> socket = Error{"no port to listen on"};
    const bool everywhere = group_.listen_at.empty();
    for (const int port : group_.ports) {
      socket = listen_on({everywhere ? "::" : group_.listen_at, port});
      if (!socket && everywhere) socket = listen_on({"0.0.0.0", port});
      if (!socket) continue;
      listener_ = std::move(*socket);
      fcntl(listener_.descriptor(), F_SETFL, fcntl(listener_.descriptor(), F_GETFL) | O_NONBLOCK);
      watch(listener_.descriptor(), EPOLLIN);
      return Ok{};
    }
    return socket.error();
  }

  const Call* answered() const {
    const auto call =
        std::find_if(calls_.begin(), calls_.end(), [](const Call& c) { return c.state == Call::State::kAnswered; });
    return call == calls_.end() ? nullptr : &*call;
  }

  // The other ranks of a node hear of its first one what that has heard of a listener.
  Clock::time_point deadline() const {
    const auto grace = is_first_of_node() ? kGrace : 2 * kGrace;
    return start_ + timeout_ + (answered() != nullptr ? grace : milliseconds(0));
  }

  bool node_is_complete() const { return static_cast<int>(ranks_here_.size()) == group_.local_size; }

  Clock::time_point end_of_patience() const {
    const bool waits = is_first_of_node() && !is_one_node() && !heard_ && node_is_complete();
    return waits ? complete_since_ + group_.patience : Clock::time_point::max();
  }

  // A node that answered at a first place needs no other; one at another place may itself be
  // waiting for a first place.
  bool superfluous(const Call& call) const {
    const Call* best = nullptr;
    for (const Call& other : calls_) {
      if (other.state == Call::State::kAnswered && (best == nullptr || other.is_first_place)) best = &other;
    }
    return best != nullptr && &call != best && (best->is_first_place || !call.is_first_place);
  }

  void begin_calls(Clock::time_point now) {
    const auto connecting = [](const Call& call) { return call.state == Call::State::kConnecting; };
    auto free = kCallsAtOnce - std::count_if(calls_.begin(), calls_.end(), connecting);
    const bool some_answer = answered() != nullptr;
    for (Call& call : calls_) {
      if (free <= 0) break;
      if (call.in_use() || call.due > now || (some_answer && superfluous(call))) continue;
      auto socket = begin(call);
      if (!socket) continue;
      if (!*socket) {
        retry_later(call, now, socket->error().message);
        continue;
      }
      call.socket = std::move(**socket);
      call.state = Call::State::kConnecting;
      call.give_up_at = now + kConnectLimit;
      call_of_[call.socket.descriptor()] = &call;
      watch(call.socket.descriptor(), EPOLLOUT);
      --free;
    }
  }

  Endpoint endpoint_of(const Call& call) const {
    return {call.place, call.on_this_node() ? 0 : group_.ports[call.port]};
  }

  // Nothing as long as a name is being looked up.
  std::optional<Result<Socket>> begin(const Call& call) {
    if (call.on_this_node()) return begin_connecting_to_name(group_.node_key);
    const auto address = address_of(call.place);
    if (!address) return std::nullopt;
    if (!*address) return Result<Socket>(address->error());
    return begin_connecting({**address, group_.ports[call.port]});
  }

  void retry_later(Call& call, Clock::time_point now, const std::string& reason) {
    call.reason = reason;
    if (call.socket.open()) call_of_.erase(call.socket.descriptor());
    call.socket = Socket();
    call.received.clear();
    call.state = Call::State::kIdle;
    const auto ports = group_.ports.size();
    if (!call.on_this_node() && ports != 0 && ++call.port % ports != 0) {
      call.due = now + microseconds(1);  // the next port
      return;
    }
    call.port = 0;
    call.due = now + call.pause / 2 + microseconds(static_cast<std::int64_t>(random_() % (call.pause.count() / 2 + 1)));
    call.pause = std::min(2 * call.pause, call.longest_pause);
  }

  // Nothing as long as a name is being looked up. Where the first calls succeed, none is.
  std::optional<Result<std::string>> address_of(const std::string& place) {
    if (is_numeric(place)) return place;
    if (!looking_up_) {
      std::vector<std::string> names;
      for (const auto* places : {&group_.first_places, &group_.other_places}) {
        std::copy_if(places->begin(), places->end(), std::back_inserter(names),
                     [](const auto& name) { return !is_numeric(name); });
      }
      resolver_.start(std::move(names));
      looking_up_ = true;
    }
    return resolver_.find(place);
  }

  // When something is to be done, whatever happens on the sockets.
  Clock::time_point next(Clock::time_point now) const {
    auto next = std::min(deadline(), end_of_patience());
    for (const Call& call : calls_) {
      if (call.is_unanswered()) next = std::min(next, call.give_up_at);
      // One that is due by now waits for its address, or for a free place among those that connect.
      if (call.state == Call::State::kIdle && call.due > now) next = std::min(next, call.due);
    }
    return next;
  }

  void wait(Clock::time_point now) {
    constexpr int kEvents = 1024;
    epoll_event events[kEvents];
    const auto left = std::max(std::chrono::ceil<milliseconds>(next(now) - now), milliseconds(0));
    const int count = epoll_wait(events_.descriptor(), events, kEvents, static_cast<int>(left.count()));
    const auto later = Clock::now();
    for (int i = 0; i < count && !outcome_; ++i) {
      const int descriptor = events[i].data.fd;
      if (descriptor == resolver_.news()) {
        resolver_.clear_news();
      } else if (descriptor == node_listener_.descriptor()) {
        accept_callers(node_listener_, true);
      } else if (descriptor == listener_.descriptor()) {
        accept_callers(listener_, false);
      } else if (const auto caller = callers_.find(descriptor); caller != callers_.end()) {
        if (!listen_to(caller->second)) forget(caller);
      } else if (const auto call = call_of_.find(descriptor); call != call_of_.end()) {
        go_on(*call->second, later);
      }
    }
    for (Call& call : calls_) {
      if (call.is_unanswered() && later >= call.give_up_at) {
        const bool is_silent = call.state == Call::State::kConnected;
        retry_later(call, later, is_silent ? kNoAnswer : cannot_connect(endpoint_of(call), ETIMEDOUT).message);
      }
      if (call.in_use() && superfluous(call)) retry_later(call, later, "");
    }
  }

  void accept_callers(const Socket& listener, bool on_this_node) {
    while (true) {
      Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) return;
      if (on_this_node && !is_of_this_user(socket)) continue;
      const int descriptor = socket.descriptor();
      watch(descriptor, EPOLLIN);
      callers_.emplace(descriptor, Caller{std::move(socket), on_this_node});
    }
  }

  // False when the caller is to be forgotten.
  bool listen_to(Caller& caller) {
    const bool stays = receive(caller.socket, caller.received, language_.longest());
    while (true) {
      const auto message = language_.read(caller.received);
      if (!message) return false;
      if (message->kind.empty()) return stays;
      const bool is_first = caller.ranks.empty();
      if (message->kind != "values" || !take(split_values(message->body), caller)) return false;
      heard_ = heard_ || !caller.on_this_node;
      if (is_first && !send_all(caller.socket, language_.written("here", ""))) return false;
    }
  }

  // Who hangs up would not hear the answer: its ranks count again when they come again.
  void forget(std::map<int, Caller>::iterator caller) {
    for (const int rank : caller->second.ranks) {
      if (--tellers_[rank] > 0) continue;
      came_[rank] = false;
      std::erase(ranks_here_, rank);
    }
    callers_.erase(caller);
  }

  // A node may call at two addresses of this one. A rank that says something else than before has
  // come for the next gathering, and will try again when this one is over.
  bool take(const std::vector<std::string>& pairs, Caller& caller) {
    std::map<int, const std::string*> told;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const auto rank = parse_integer(pairs[i], 0, group_.size - 1);
      if (!rank || (came_[*rank] && values_[*rank] != pairs[i + 1])) return false;
      told[static_cast<int>(*rank)] = &pairs[i + 1];
    }
    for (const auto& [rank, value] : told) {
      caller.ranks.push_back(rank);
      ++tellers_[rank];
      if (came_[rank]) continue;
      values_[rank] = *value;
      came_[rank] = true;
      if (!caller.on_this_node) continue;
      ranks_here_.push_back(rank);
      if (rank == group_.listening_rank && !listener_.open() && !is_one_node()) {
        if (const auto listening = listen_for_nodes(); !listening) outcome_ = give_up(listening.error().message);
      }
      if (node_is_complete()) complete_since_ = Clock::now();
      tell_listeners(rank);
    }
    return true;
  }

  // A rank of this node came after its first one had called.
  void tell_listeners(int rank) {
    const std::string message = language_.written("values", join_values({std::to_string(rank), values_[rank]}));
    for (const Call& call : calls_) {
      if (call.state == Call::State::kConnected || call.state == Call::State::kAnswered) send_all(call.socket, message);
    }
  }

  std::string own_values() const {
    std::vector<std::string> pairs;
    for (const int rank : ranks_here_) pairs.insert(pairs.end(), {std::to_string(rank), values_[rank]});
    return language_.written("values", join_values(pairs));
  }

  void go_on(Call& call, Clock::time_point now) {
    if (call.state == Call::State::kConnecting) {
      if (const auto reached = connected(call.socket, endpoint_of(call)); !reached) {
        return retry_later(call, now, reached.error().message);
      }
      const bool is_trusted = !call.on_this_node() || is_of_this_user(call.socket);
      if (!is_trusted || !send_all(call.socket, own_values())) return retry_later(call, now, kNoAnswer);
      call.state = Call::State::kConnected;
      call.give_up_at = now + kAcknowledgeLimit + milliseconds(group_.size);  // a busy listener takes its time
      watch(call.socket.descriptor(), EPOLLIN, EPOLL_CTL_MOD);
      return;
    }
    const bool stays = receive(call.socket, call.received, language_.longest());
    while (!outcome_) {
      const auto message = language_.read(call.received);
      if (!message || (message->kind.empty() && !stays)) return retry_later(call, now, kNoAnswer);
      if (message->kind.empty()) return;
      understand(call, *message);
    }
  }

  void understand(Call& call, const Message& message) {
    if (message.kind == "here") {
      heard_ = true;
      call.state = Call::State::kAnswered;
    } else if (message.kind == "error") {
      outcome_ = Error{.message = give_up(message.body).message, .reported_elsewhere = true};
    } else if (message.kind == "nobody") {
      outcome_ = tell_nobody(message.body);
    } else if (message.kind == "answer") {
      outcome_ = answer(split_values(message.body));
    }
  }

  void tell_callers(const std::string& kind, const std::string& body, bool this_node_only = false) {
    const std::string message = language_.written(kind, body);
    for (const auto& [descriptor, caller] : callers_) {
      if (!caller.ranks.empty() && (caller.on_this_node || !this_node_only)) send_all(caller.socket, message);
    }
  }

  Result<Gathered> finish() {
    if (!reduce_) return answer(std::move(values_));
    auto reduced = reduce_(std::move(values_));
    if (!reduced) return give_up(reduced.error().message);
    return answer(std::move(*reduced));
  }

  Gathered answer(Values values) {
    tell_callers("answer", join_values(values));
    return Gathered{std::move(values), {}};
  }

  Gathered tell_nobody(const std::string& whom) {
    tell_callers("nobody", whom, true);
    return Gathered{{}, whom};
  }

  Error give_up(const std::string& why) {
    tell_callers("error", why);
    return {why};
  }

  // At the deadline.
  Result<Gathered> unanswered() {
    const Call* call = answered();
    const bool has_listened = is_first_of_node() && (is_one_node() || listener_.open());
    if (has_listened)
      return give_up(group_.missing ? group_.missing(came_) : missing_ranks_error(came_, timeout_).message);
    if (!is_first_of_node()) {
      return give_up("the first rank of this node did not answer within " + seconds(timeout_) +
                     ": does every rank run this program, and do all share one network namespace?");
    }
    if (call == nullptr) return tell_nobody(whom());
    return give_up(call->place + " port " + std::to_string(group_.ports[call->port]) +
                   ", the rendezvous of the nodes of this job, did not answer within " + seconds(timeout_));
  }

  std::string whom() const {
    constexpr std::size_t kShown = 4;
    std::string text = "no other node of this job answered within " + seconds(std::min(group_.patience, timeout_));
    for (std::size_t i = 0; i < calls_.size() && i < kShown; ++i) {
      const std::string& reason = calls_[i].reason;
      text += (i == 0 ? " at " : ", ") + calls_[i].place + (reason.empty() ? "" : " (" + reason + ")");
    }
    return text;
  }

  const Group& group_;
  const milliseconds timeout_;
  const Reduce& reduce_;
  const Language language_;
  Values values_;
  std::vector<bool> came_;
  std::vector<int> tellers_;     // how many callers gave each rank's value
  std::vector<int> ranks_here_;  // of this node, that came
  const Clock::time_point start_;
  Clock::time_point complete_since_ = start_;
  RaisedDescriptorLimit many_descriptors_;
  Socket events_{epoll_create1(EPOLL_CLOEXEC)};
  Socket listener_, node_listener_;
  std::map<int, Caller> callers_;  // by descriptor
  std::vector<Call> calls_;
  std::map<int, Call*> call_of_;  // by descriptor
  NameResolver resolver_;
  std::minstd_rand random_{std::random_device{}()};
  bool looking_up_ = false;
  bool heard_ = false;  // of another node
  std::optional<Result<Gathered>> outcome_;
};

}  // namespace

Result<Gathered> all_gather(const Group& group, const std::string& value, milliseconds timeout, const Reduce& reduce) {
  return Gatherer(group, value, timeout, reduce).run();
}

}  // namespace torchbridge
