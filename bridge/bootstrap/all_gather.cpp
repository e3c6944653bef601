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

#include "bridge/base/constant_time.h"
#include "bridge/base/env_map.h"
#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/base/random_number.h"
#include "bridge/base/visible_text.h"
#include "bridge/bootstrap/descriptor_limit.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/bootstrap/packed_values.h"
#include "bridge/net/address.h"
#include "bridge/net/host_names.h"
#include "bridge/net/name_resolver.h"
#include "bridge/net/socket.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kMaxHeader = 256;
constexpr std::size_t kMaxValue = 1024;  // of one rank, with its lengths
constexpr int kCallsAtOnce = 64;         // that have not connected yet
// The other hosts are tried one after the other, so that a large job does not connect to all its
// nodes when the first host suffices.
constexpr microseconds kFirstOther{5000}, kNextOther{1000};
constexpr microseconds kFirstPause{2000}, kLongestPause{2'000'000};
// No other node is loaded by these.
constexpr microseconds kFirstPauseOnNode{200}, kLongestPauseOnNode{20'000};
constexpr milliseconds kConnectLimit{3000}, kAcknowledgeLimit{1000};
// Callers that have sent nothing yet that is of this job, beside one for each rank, as all nodes
// may call at once: of more the oldest is closed, and when another calls, each that has had this
// time.
constexpr std::size_t kMostStrangers = 256;
constexpr milliseconds kStrangerLimit{5000};
constexpr const char* kOfAnotherJob = "the program that listens there does not belong to this job";
constexpr milliseconds kGrace{
    1000};  // at the timeout a listener sends who is missing: time for that message

// "torchbridge KIND LENGTH HEAD PROOF\nBODY". HEAD is a proof of the kind and the length, so that
// no body of a stranger is kept; PROOF is one of all.
struct BootstrapMessage {
  std::string kind, body;
};

class MessageFormat {
 public:
  explicit MessageFormat(const BootstrapGroup& group)
      : secret_(group.secret),
        job_(group.job),
        longest_(kMaxValue * static_cast<std::size_t>(group.size)) {}

  std::string encoded(const std::string& kind, const std::string& body) const {
    const std::string length = std::to_string(body.size());
    return "torchbridge " + kind + " " + length + " " + proof("head " + kind, length) + " " +
           proof(kind, body) + "\n" + body;
  }

  // Takes the first message from `received`; its kind is empty while the message is not complete.
  // Nothing where the bytes are no message of this job.
  std::optional<BootstrapMessage> read(std::string& received) const {
    const auto newline = received.find('\n');
    if (newline == received.npos)
      return received.size() > kMaxHeader ? std::nullopt : std::optional(BootstrapMessage{});
    if (newline > kMaxHeader) return std::nullopt;
    const std::string header = received.substr(0, newline);
    char kind[16], length[24], head[80], tag[80];
    if (std::sscanf(header.c_str(), "torchbridge %15s %23s %79s %79s", kind, length, head, tag) !=
        4) {
      return std::nullopt;
    }
    const auto size = parse_integer(length, 0, static_cast<std::int64_t>(longest_));
    if (!size || !is_equal_in_constant_time(head, proof("head " + std::string(kind), length)))
      return std::nullopt;
    if (received.size() - newline - 1 < static_cast<std::size_t>(*size)) return BootstrapMessage{};
    BootstrapMessage message{kind, received.substr(newline + 1, *size)};
    if (!is_equal_in_constant_time(tag, proof(message.kind, message.body))) return std::nullopt;
    received.erase(0, newline + 1 + *size);
    return message;
  }

  std::size_t longest() const { return longest_ + kMaxHeader; }

 private:
  std::string proof(const std::string& kind, const std::string& body) const {
    return hex_of(hmac_sha256(secret_, job_ + "\n" + kind + "\n" + body));
  }

  std::string secret_;
  std::string job_;
  std::size_t longest_;
};

// Appends what has arrived. False when the other end closed the connection, or sent more than any
// message holds.
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
    const ssize_t size =
        send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
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
  std::vector<int> ranks{};  // whose values it sent: it gets the answer
  Clock::time_point since = Clock::now();
};

// A host that may have a listener, at any of the ports in turn.
struct Call {
  enum class State { kIdle, kConnecting, kConnected, kAnswered };

  std::string host;  // empty: the first rank of this node
  bool is_first_host;
  Clock::time_point due;  // of kIdle: when it is tried
  microseconds pause = kFirstPause, longest_pause = kLongestPause;
  std::size_t port = 0;  // index of the one that is tried next, or that is in use
  State state = State::kIdle;
  // Of kConnecting and kConnected: then another program listens there.
  Clock::time_point give_up_at{};
  Socket socket{};
  std::string received{};
  std::string reason{};  // of the last failure

  bool in_use() const { return state != State::kIdle; }
  bool is_unanswered() const { return state == State::kConnecting || state == State::kConnected; }
  bool on_this_node() const { return host.empty(); }
};

class Gatherer {
 public:
  Gatherer(const BootstrapGroup& group, const std::string& value, milliseconds timeout,
           const Reduce& reduce)
      : group_(group),
        timeout_(timeout),
        reduce_(reduce),
        format_(group),
        values_(group.size),
        arrived_(group.size),
        sources_(group.size),
        start_(Clock::now()) {
    values_[group.rank] = value;
    arrived_[group.rank] = true;
    sources_[group.rank] = 1;
    ranks_here_ = {group.rank};
    plan_calls();
  }

  Result<Gathered> run() {
    if (const auto listening = listen(); !listening) return listening.error();
    watch(resolver_.event(), EPOLLIN);
    while (true) {
      const auto now = Clock::now();
      if (std::find(arrived_.begin(), arrived_.end(), false) == arrived_.end()) return finish();
      if (now >= deadline()) return timed_out();
      if (now >= connect_deadline()) return unreached(hosts_tried());
      if (const auto reason = no_other_address(); !reason.empty()) return unreached(reason);
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
    for (const auto& host : group_.first_hosts) calls_.push_back({host, true, start_});
    auto due = start_ + kFirstOther;
    for (const auto& host : group_.other_hosts) {
      calls_.push_back({host, false, due});
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

  Status listen_on_node() {
    auto pause = kFirstPauseOnNode;
    auto listener = listen_on_name(node_name_);
    while (!listener && Clock::now() < start_ + timeout_) {
      poll(nullptr, 0, static_cast<int>(std::chrono::ceil<milliseconds>(pause).count()));
      pause = std::min(2 * pause, kLongestPauseOnNode);
      listener = listen_on_name(node_name_);
    }
    if (!listener)
      return Error{formatted("cannot listen for the other ranks of this node: {}",
                             listener.error().message)};
    node_listener_ = std::move(*listener);
    watch(node_listener_.descriptor(), EPOLLIN);
    return Ok{};
  }

  Status listen_for_nodes() {
    for (Call& call : calls_) {
      if (call.is_first_host) continue;
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
    const auto call = std::ranges::find(calls_, Call::State::kAnswered, &Call::state);
    return call == calls_.end() ? nullptr : &*call;
  }

  // A node's first rank forwards the listener's last message to the other ranks, which therefore
  // wait longer.
  Clock::time_point deadline() const {
    const auto grace = is_first_of_node() ? kGrace : 2 * kGrace;
    return start_ + timeout_ + (answered() != nullptr ? grace : milliseconds(0));
  }

  bool node_is_complete() const {
    return static_cast<int>(ranks_here_.size()) == group_.local_size;
  }

  Clock::time_point connect_deadline() const {
    const bool waits = is_first_of_node() && !is_one_node() && !has_contact_ && node_is_complete();
    return waits ? complete_since_ + group_.connect_timeout : Clock::time_point::max();
  }

  // Why no other node can answer; empty where one may, or while names are looked up.
  std::string no_other_address() {
    if (!group_.needs_other_hosts || connect_deadline() == Clock::time_point::max()) return {};
    const auto short_name = [](const std::string& host) { return host.substr(0, host.find('.')); };
    std::string reason;
    for (const auto& host : group_.other_hosts) {
      if (short_name(host) == short_name(host_name())) continue;
      const auto address = address_of(host);
      if (!address || *address) return {};
      if (reason.empty())
        reason =
            formatted("no other node of this job has an address: {}", address->error().message);
    }
    return reason;
  }

  // An answer of a first host makes all other calls superfluous. A node among the other hosts may
  // itself be waiting for a first host.
  bool superfluous(const Call& call) const {
    const Call* best = nullptr;
    for (const Call& other : calls_) {
      if (other.state == Call::State::kAnswered && (best == nullptr || other.is_first_host))
        best = &other;
    }
    return best != nullptr && &call != best && (best->is_first_host || !call.is_first_host);
  }

  void begin_calls(Clock::time_point now) {
    auto free = kCallsAtOnce - std::ranges::count(calls_, Call::State::kConnecting, &Call::state);
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
    return {call.host, call.on_this_node() ? 0 : group_.ports[call.port]};
  }

  // Nothing while a name is being looked up.
  std::optional<Result<Socket>> begin(const Call& call) {
    if (call.on_this_node()) return connect_to_name(node_name_);
    const auto address = address_of(call.host);
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
    call.due = now + call.pause / 2 +
               microseconds(static_cast<std::int64_t>(random_() % (call.pause.count() / 2 + 1)));
    call.pause = std::min(2 * call.pause, call.longest_pause);
  }

  // Nothing while a name is being looked up. Where the first calls succeed, no name is.
  std::optional<Result<std::string>> address_of(const std::string& host) {
    if (is_numeric(host)) return host;
    if (!looking_up_) {
      std::vector<std::string> names;
      for (const auto* hosts : {&group_.first_hosts, &group_.other_hosts}) {
        std::copy_if(hosts->begin(), hosts->end(), std::back_inserter(names),
                     [](const auto& name) { return !is_numeric(name); });
      }
      resolver_.start(std::move(names));
      looking_up_ = true;
    }
    return resolver_.find(host);
  }

  // The next time at which something is due even if no socket becomes ready.
  Clock::time_point next(Clock::time_point now) const {
    auto next = std::min(deadline(), connect_deadline());
    for (const Call& call : calls_) {
      if (call.is_unanswered()) next = std::min(next, call.give_up_at);
      // One that is due by now waits for its address, or until fewer than kCallsAtOnce connect.
      if (call.state == Call::State::kIdle && call.due > now) next = std::min(next, call.due);
    }
    return next;
  }

  void wait(Clock::time_point now) {
    constexpr int kEvents = 1024;
    epoll_event events[kEvents];
    const auto left = std::max(std::chrono::ceil<milliseconds>(next(now) - now), milliseconds(0));
    const int count =
        epoll_wait(events_.descriptor(), events, kEvents, static_cast<int>(left.count()));
    const auto later = Clock::now();
    for (int i = 0; i < count && !outcome_; ++i) {
      const int descriptor = events[i].data.fd;
      if (descriptor == resolver_.event()) {
        resolver_.clear_event();
      } else if (descriptor == node_listener_.descriptor()) {
        accept_callers(node_listener_, true);
      } else if (descriptor == listener_.descriptor()) {
        accept_callers(listener_, false);
      } else if (const auto caller = callers_.find(descriptor); caller != callers_.end()) {
        if (!read_from(caller->second)) remove(caller);
      } else if (const auto call = call_of_.find(descriptor); call != call_of_.end()) {
        advance(*call->second, later);
      }
    }
    for (Call& call : calls_) {
      if (call.is_unanswered() && later >= call.give_up_at) {
        const bool is_connected = call.state == Call::State::kConnected;
        retry_later(
            call, later,
            is_connected ? kOfAnotherJob : cannot_connect(endpoint_of(call), ETIMEDOUT).message);
      }
      if (call.in_use() && superfluous(call)) retry_later(call, later, "");
    }
  }

  // Bounded: others can connect faster than they are accepted, and the deadline is looked at in
  // between.
  void accept_callers(const Socket& listener, bool on_this_node) {
    constexpr int kAtOnce = 64;
    for (int i = 0; i < kAtOnce; ++i) {
      Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) {
        const bool has_none_left =
            errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (has_none_left && !close_strangers(0))
          poll(nullptr, 0, 10);  // it stays ready: not a loop without a pause
        return;
      }
      if (on_this_node && !is_of_this_user(socket)) continue;
      if (!on_this_node) close_strangers(kMostStrangers + static_cast<std::size_t>(group_.size));
      const int descriptor = socket.descriptor();
      watch(descriptor, EPOLLIN);
      callers_.emplace(descriptor, Caller{std::move(socket), on_this_node});
    }
  }

  static bool is_stranger(const Caller& caller) {
    return !caller.on_this_node && caller.ranks.empty();
  }

  // Closes those that have had their time, and where `most` or more are left, the oldest. False
  // where it closed none.
  bool close_strangers(std::size_t most) {
    const auto now = Clock::now();
    auto closed = std::erase_if(callers_, [&](const auto& entry) {
      return is_stranger(entry.second) && now - entry.second.since > kStrangerLimit;
    });
    auto oldest = callers_.end();
    std::size_t strangers = 0;
    for (auto entry = callers_.begin(); entry != callers_.end(); ++entry) {
      if (!is_stranger(entry->second)) continue;
      ++strangers;
      if (oldest == callers_.end() || entry->second.since < oldest->second.since) oldest = entry;
    }
    if (strangers > 0 && strangers >= most) {
      callers_.erase(oldest);
      ++closed;
    }
    return closed > 0;
  }

  // False when the caller is to be removed.
  bool read_from(Caller& caller) {
    const bool stays = receive(caller.socket, caller.received, format_.longest());
    while (true) {
      const auto message = format_.read(caller.received);
      if (!message) return false;
      if (message->kind.empty()) return stays;
      const bool is_first = caller.ranks.empty();
      if (message->kind != "values" || !accept_values(split_values(message->body), caller))
        return false;
      has_contact_ = has_contact_ || !caller.on_this_node;
      if (is_first && !send_all(caller.socket, format_.encoded("here", ""))) return false;
    }
  }

  // A caller that closes its connection would not get the answer: its ranks count again when they
  // connect again.
  void remove(std::map<int, Caller>::iterator caller) {
    for (const int rank : caller->second.ranks) {
      if (--sources_[rank] > 0) continue;
      arrived_[rank] = false;
      std::erase(ranks_here_, rank);
    }
    callers_.erase(caller);
  }

  // A node may connect to two addresses of this one. A rank that sends another value than before
  // belongs to the next all-gather, and tries again when this one is over.
  bool accept_values(const std::vector<std::string>& pairs, Caller& caller) {
    std::map<int, const std::string*> sent;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const auto rank = parse_integer(pairs[i], 0, group_.size - 1);
      if (!rank || (arrived_[*rank] && values_[*rank] != pairs[i + 1])) return false;
      sent[static_cast<int>(*rank)] = &pairs[i + 1];
    }
    for (const auto& [rank, value] : sent) {
      caller.ranks.push_back(rank);
      ++sources_[rank];
      if (arrived_[rank]) continue;
      values_[rank] = *value;
      arrived_[rank] = true;
      if (!caller.on_this_node) continue;
      ranks_here_.push_back(rank);
      if (rank == group_.listening_rank && !listener_.open() && !is_one_node()) {
        if (const auto listening = listen_for_nodes(); !listening)
          outcome_ = fail(listening.error().message);
      }
      if (node_is_complete()) complete_since_ = Clock::now();
      send_to_listeners(rank);
    }
    return true;
  }

  // For a rank of this node that arrived after its first rank had connected to the listeners.
  void send_to_listeners(int rank) {
    const std::string message =
        format_.encoded("values", join_values({std::to_string(rank), values_[rank]}));
    for (const Call& call : calls_) {
      if (call.state == Call::State::kConnected || call.state == Call::State::kAnswered)
        send_all(call.socket, message);
    }
  }

  std::string own_values() const {
    std::vector<std::string> pairs;
    for (const int rank : ranks_here_)
      pairs.insert(pairs.end(), {std::to_string(rank), values_[rank]});
    return format_.encoded("values", join_values(pairs));
  }

  void advance(Call& call, Clock::time_point now) {
    if (call.state == Call::State::kConnecting) {
      if (const auto reached = connected(call.socket, endpoint_of(call)); !reached) {
        return retry_later(call, now, reached.error().message);
      }
      if (!send_all(call.socket, own_values())) return retry_later(call, now, kOfAnotherJob);
      call.state = Call::State::kConnected;
      // A busy listener takes its time.
      call.give_up_at = now + kAcknowledgeLimit + milliseconds(group_.size);
      watch(call.socket.descriptor(), EPOLLIN, EPOLL_CTL_MOD);
      return;
    }
    const bool stays = receive(call.socket, call.received, format_.longest());
    while (!outcome_) {
      const auto message = format_.read(call.received);
      if (!message || (message->kind.empty() && !stays))
        return retry_later(call, now, kOfAnotherJob);
      if (message->kind.empty()) return;
      handle(call, *message);
    }
  }

  void handle(Call& call, const BootstrapMessage& message) {
    if (message.kind == "here") {
      has_contact_ = true;
      call.state = Call::State::kAnswered;
    } else if (message.kind == "error") {
      const std::string reason = visible_line(message.body, format_.longest());
      outcome_ = Error{.message = fail(reason).message, .reported_elsewhere = true};
    } else if (message.kind == "unreached" && call.on_this_node()) {
      outcome_ = unreached(message.body);
    } else if (message.kind == "answer") {
      outcome_ = answer(split_values(message.body));
    }
  }

  void send_to_callers(const std::string& kind, const std::string& body,
                       bool this_node_only = false) {
    const std::string message = format_.encoded(kind, body);
    for (const auto& [descriptor, caller] : callers_) {
      if (!caller.ranks.empty() && (caller.on_this_node || !this_node_only))
        send_all(caller.socket, message);
    }
  }

  Result<Gathered> finish() {
    if (!reduce_) return answer(std::move(values_));
    auto reduced = reduce_(std::move(values_));
    if (!reduced) return fail(reduced.error().message);
    return answer(std::move(*reduced));
  }

  Gathered answer(Values values) {
    send_to_callers("answer", join_values(values));
    return Gathered{std::move(values), {}};
  }

  Gathered unreached(const std::string& hosts) {
    send_to_callers("unreached", hosts, true);
    return Gathered{{}, hosts};
  }

  Error fail(const std::string& reason) {
    send_to_callers("error", reason);
    return {reason};
  }

  Result<Gathered> timed_out() {
    const Call* call = answered();
    const bool has_listened = is_first_of_node() && (is_one_node() || listener_.open());
    if (has_listened)
      return fail(group_.missing ? group_.missing(arrived_)
                                 : missing_ranks_error(arrived_, timeout_).message);
    if (!is_first_of_node()) {
      return fail(
          formatted("the first rank of this node did not answer within {}: does every rank run "
                    "this program, in one network namespace?",
                    seconds(timeout_)));
    }
    if (call == nullptr) return unreached(hosts_tried());
    return fail(
        formatted("{} port {}, the rendezvous of the nodes of this job, did not answer within {}",
                  call->host, group_.ports[call->port], seconds(timeout_)));
  }

  std::string hosts_tried() const {
    constexpr std::size_t kShown = 4;
    std::string text = formatted("no other node of this job answered within {}",
                                 seconds(std::min(group_.connect_timeout, timeout_)));
    for (std::size_t i = 0; i < calls_.size() && i < kShown; ++i) {
      const std::string& reason = calls_[i].reason;
      text +=
          (i == 0 ? " at " : ", ") + calls_[i].host + (reason.empty() ? "" : " (" + reason + ")");
    }
    return text;
  }

  const BootstrapGroup& group_;
  const std::string node_name_ = name_on_node(group_);
  const milliseconds timeout_;
  const Reduce& reduce_;
  const MessageFormat format_;
  Values values_;
  std::vector<bool> arrived_;    // by rank: its value is known
  std::vector<int> sources_;     // how many callers sent each rank's value
  std::vector<int> ranks_here_;  // the ranks of this node that arrived
  const Clock::time_point start_;
  Clock::time_point complete_since_ = start_;
  RaisedDescriptorLimit many_descriptors_;
  Socket events_{epoll_create1(EPOLL_CLOEXEC)};
  Socket listener_, node_listener_;
  std::map<int, Caller> callers_;  // by descriptor
  std::vector<Call> calls_;
  std::map<int, Call*> call_of_;  // by descriptor
  NameResolver resolver_;
  std::minstd_rand random_{random_number()};
  bool looking_up_ = false;
  bool has_contact_ = false;  // another node connected or answered
  std::optional<Result<Gathered>> outcome_;
};

}  // namespace

std::string group_secret(const std::string& token) {
  return token.empty() ? "" : hex_of(hmac_sha256(token, "torchbridge bootstrap"));
}

std::string name_on_node(const BootstrapGroup& group) {
  return hex_of(hmac_sha256(group.secret, group.node_key));
}

Result<Gathered> all_gather(const BootstrapGroup& group, const std::string& value,
                            milliseconds timeout, const Reduce& reduce) {
  return Gatherer(group, value, timeout, reduce).run();
}

}  // namespace torchbridge
