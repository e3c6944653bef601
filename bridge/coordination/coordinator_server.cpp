#include "bridge/coordination/coordinator_server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/net/peer_user.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr MemberId kListener = 0;

// The first bytes of a client of PyTorch's TCPStore: the query to validate, and its magic number
// (TCPStore.cpp).
constexpr std::string_view kStoreClient("\x00\xce\xf7\x85\x3c", 5);

// Strangers may connect from any number of addresses; none of them must use up the line about
// another one.
bool is_new(std::set<std::string>& told, const std::string& address) {
  constexpr std::size_t kMost = 16;
  return told.size() < kMost && told.insert(address).second;
}

}  // namespace

Result<CoordinatorServer> CoordinatorServer::open(Socket listener, RunKey key,
                                                  Coordinator coordinator) {
  Socket epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.open())
    return Error{formatted("cannot wait for other nodes: {}", std::strerror(errno))};
  fcntl(listener.descriptor(), F_SETFL, fcntl(listener.descriptor(), F_GETFL) | O_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (epoll_ctl(epoll.descriptor(), EPOLL_CTL_ADD, listener.descriptor(), &event) != 0) {
    return Error{formatted("cannot wait for other nodes: {}", std::strerror(errno))};
  }
  return CoordinatorServer(std::move(listener), std::move(epoll), std::move(key),
                           std::move(coordinator));
}

CoordinatorServer::CoordinatorServer(Socket listener, Socket epoll, RunKey key,
                                     Coordinator coordinator)
    : listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      key_(std::move(key)),
      coordinator_(std::move(coordinator)),
      keep_alive_(coordinator_.keep_alive()),
      most_strangers_(kMostStrangers + static_cast<std::size_t>(coordinator_.most_nodes())) {}

CoordinatorServer::Time CoordinatorServer::next_deadline() const {
  return std::min(next_sweep_, coordinator_.next_deadline());
}

// What has come is read before a keep-alive is missed: this process may have been stopped for a
// while.
void CoordinatorServer::carry(Time now) {
  constexpr int kMostEvents = 256;
  epoll_event events[kMostEvents];
  bool has_accepted = false;  // once in a call: so the work of each is bounded
  for (int count = kMostEvents; count == kMostEvents;) {
    count = epoll_wait(epoll_.descriptor(), events, kMostEvents, 0);
    for (int i = 0; i < count; ++i) {
      const auto id = static_cast<MemberId>(events[i].data.u64);
      if (id == kListener) {
        if (!std::exchange(has_accepted, true)) accept_some(now);
      } else if (peers_.contains(id)) {
        read(id, now);
      }
    }
  }
  if (now >= next_sweep_) sweep(now);
  coordinator_.pass_time(now);
  deliver(now);
}

void CoordinatorServer::stop(int signal, Time now) {
  coordinator_.stop(signal, now);
  deliver(now);
}

void CoordinatorServer::fail(const std::string& reason, Time now) {
  coordinator_.fail(reason);
  deliver(now);
}

void CoordinatorServer::accept_some(Time now) {
  // What these send is read before the next come.
  constexpr int kAcceptedAtOnce = kMostStrangers / 4;
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.open()) {
      const bool is_short_of_something =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_short_of_something) pause_accepting(errno, now);
      return;
    }
    std::string nonce = random_token();
    if (nonce.empty()) continue;  // the kernel has no random numbers yet
    if (strangers_.size() >= most_strangers_) close(strangers_.front(), "gives way", now);
    do {
      last_id_ = last_id_ % INT_MAX + 1;  // strangers may connect for weeks
    } while (peers_.contains(last_id_));
    const MemberId id = last_id_;
    AgentConnection& peer = peers_.emplace(id, std::move(nonce)).first->second;
    peer.address = peer_host(socket).value_or("an unknown address");
    peer.connection = LineConnection(std::move(socket));
    peer.accepted = peer.last_heard = peer.last_sent = now;
    peer.connection.send(peer.proof.challenge() + "\n");
    watch(id, peer, EPOLL_CTL_ADD);
    strangers_.push_back(id);
    // It may have joined by then.
    next_sweep_ = std::min(
        next_sweep_,
        after(now, std::min<Seconds>(kProofDeadline, Seconds(keep_alive_.keep_alive_interval))));
  }
}

// The connection stays in the kernel's queue, where it would wake this process again and again.
void CoordinatorServer::pause_accepting(int error, Time now) {
  if (!is_short_) lines_.push_back(formatted("cannot accept more nodes: {}", std::strerror(error)));
  is_short_ = true;
  watch_listener(false);
  next_sweep_ = std::min(next_sweep_, after(now, Seconds(keep_alive_.keep_alive_interval)));
}

void CoordinatorServer::watch_listener(bool accepts) const {
  epoll_event event{.events = accepts ? EPOLLIN : 0u, .data = {.u64 = kListener}};
  epoll_ctl(epoll_.descriptor(), EPOLL_CTL_MOD, listener_.descriptor(), &event);
}

void CoordinatorServer::watch(MemberId id, const AgentConnection& peer, int operation) const {
  epoll_event event{.events = peer.connection.events(),
                    .data = {.u64 = static_cast<std::uint64_t>(id)}};
  epoll_ctl(epoll_.descriptor(), operation, peer.connection.descriptor(), &event);
}

void CoordinatorServer::read(MemberId id, Time now) {
  AgentConnection& peer = peers_.at(id);
  peer.connection.flush();
  const auto lines = peer.connection.receive(peer.has_joined ? kLongestLine : kLongestFirstLine);
  if (!lines) return close(id, lines.error().message, now);
  if (!peer.has_proven && is_torchrun(peer)) return close(id, "is of torchrun", now);
  peer.last_heard = now;
  peer.silences = 0;
  for (const std::string& line : *lines) {
    if (!peer.has_proven) {
      if (!prove(id, peer, line, now)) return close(id, "has no proof", now);
      continue;
    }
    const auto message = parse_message(line);
    if (!message) return close(id, formatted("sent an invalid message: {}", printable(line)), now);
    receive(id, peer, *message, now);
  }
  watch(id, peer, EPOLL_CTL_MOD);
}

bool CoordinatorServer::is_torchrun(const AgentConnection& peer) {
  if (!peer.connection.unfinished().starts_with(kStoreClient)) return false;
  if (is_new(of_torchrun_, peer.address)) {
    lines_.push_back(formatted(
        "an agent of torchrun on {} tries to join, and cannot: start all nodes by torchbridge run; "
        "if it is a worker, its init_method has the coordinator's port: give env://",
        peer.address));
  }
  return true;
}

bool CoordinatorServer::prove(MemberId id, AgentConnection& peer, const std::string& line,
                              Time now) {
  const auto proven = peer.proof.check(key_, line);
  if (!proven) {
    if (is_proof(line) && is_new(with_other_key_, peer.address)) {
      lines_.push_back(formatted(
          "a program on {} has no valid proof and gets no answer: if it is a node of this run, "
          "give all nodes the same --rdzv-id, and the same --rdzv-token-file or {}",
          peer.address, kTokenVariable));
    }
    return false;
  }
  if (!key_.has_token() && user_of_peer(peer.connection.descriptor()) == PeerUser::kAnotherUser) {
    if (is_new(of_other_users_, peer.address)) {
      lines_.push_back(formatted(
          "another user's program on {} gives the run's id and gets no answer", peer.address));
    }
    return false;
  }
  peer.has_proven = true;
  std::string answer = proven->answer + "\n";
  if (proven->purpose == ConnectionPurpose::kStatus)
    answer += line_of(RunStatus{coordinator_.status_json()});
  peer.connection.send(answer);
  peer.last_sent = now;
  if (proven->purpose == ConnectionPurpose::kStatus) close_when_sent(id);
  return true;
}

void CoordinatorServer::receive(MemberId id, AgentConnection& peer, const AgentMessage& message,
                                Time now) {
  if (peer.is_closing) return;
  if (const auto* alive = std::get_if<Alive>(&message)) {
    const double round_trip = clock_now() - alive->answered_clock;
    if (alive->answered_clock == 0 || round_trip < 0 || round_trip / 2 > peer.clock_error) return;
    peer.clock_error = round_trip / 2;
    coordinator_.set_clock(id, alive->clock - alive->answered_clock - round_trip / 2,
                           peer.clock_error);
  } else if (const auto* join = std::get_if<Join>(&message); join && !peer.has_joined) {
    coordinator_.join(id, *join, now);
    send_outgoing(now);  // Welcome comes before anything else
    if (peer.is_closing) return;
    peer.has_joined = true;
    std::erase(strangers_, id);
    send(id, Alive{clock_now(), 0}, now);
  } else {
    coordinator_.receive(id, message, now);
  }
}

CoordinatorServer::Time CoordinatorServer::lost_at(const AgentConnection& peer) const {
  if (!peer.has_joined) return peer.accepted + kProofDeadline;
  return after(peer.last_heard,
               Seconds(keep_alive_.keep_alive_interval) * keep_alive_.keep_alive_attempts);
}

void CoordinatorServer::sweep(Time now) {
  const Seconds interval(keep_alive_.keep_alive_interval);
  // This process had no CPU for a while, and has sent no keep-alives meanwhile: the time starts
  // again.
  const bool has_slept = now > after(next_sweep_, interval);
  next_sweep_ = Time::max();
  if (is_short_) watch_listener(true);
  std::vector<MemberId> lost;
  for (auto& [id, peer] : peers_) {
    if (has_slept) peer.last_heard = now;
    if (now >= lost_at(peer)) {
      lost.push_back(id);
      // One that is stopped reads the end when it continues.
      if (!peer.has_joined || !coordinator_.has_ended()) continue;
      peer.last_heard = now;
    }
    if (peer.has_joined && now >= after(peer.last_sent, interval))
      send(id, Alive{clock_now(), 0}, now);
    next_sweep_ = std::min(next_sweep_, lost_at(peer));
    if (peer.has_joined) next_sweep_ = std::min(next_sweep_, after(peer.last_sent, interval));
  }
  const auto seconds =
      std::chrono::ceil<std::chrono::seconds>(interval * keep_alive_.keep_alive_attempts).count();
  const std::string how = formatted("sent nothing for {} s", seconds);
  for (const MemberId id : lost) {
    AgentConnection& peer = peers_.at(id);
    if (!peer.has_joined || !coordinator_.has_ended()) {
      close(id, how, now, Coordinator::HowLost::kSilent);
    } else if (++peer.silences == 1) {
      coordinator_.report_silent(id, how);
    }
  }
}

int CoordinatorServer::silences_of_members() const {
  std::optional<int> fewest;
  for (const auto& [id, peer] : peers_) {
    if (peer.has_joined) fewest = std::min(fewest.value_or(peer.silences), peer.silences);
  }
  return fewest.value_or(0);
}

// A connection that fails now is noticed when it is read.
void CoordinatorServer::send_outgoing(Time now) {
  for (const auto& outgoing : coordinator_.take_outgoing()) {
    const auto peer = peers_.find(outgoing.to);
    if (peer == peers_.end()) continue;
    send(outgoing.to, outgoing.message, now);
    if (outgoing.disconnects) close_when_sent(outgoing.to);
  }
}

void CoordinatorServer::deliver(Time now) {
  send_outgoing(now);
  for (const MemberId id : std::exchange(closing_, {})) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end()) continue;
    if (peer->second.connection.has_unsent()) {
      closing_.push_back(id);
    } else {
      close(id, "was rejected", now);
    }
  }
}

void CoordinatorServer::close_when_sent(MemberId id) {
  peers_.at(id).is_closing = true;
  closing_.push_back(id);
}

std::vector<std::string> CoordinatorServer::take_lines() {
  auto lines = coordinator_.take_lines();
  lines.insert(lines.end(), lines_.begin(), lines_.end());
  lines_.clear();
  return lines;
}

void CoordinatorServer::send(MemberId id, const AgentMessage& message, Time now) {
  AgentConnection& peer = peers_.at(id);
  peer.connection.send(line_of(message));
  peer.last_sent = now;
  watch(id, peer, EPOLL_CTL_MOD);
}

void CoordinatorServer::close(MemberId id, const std::string& how, Time now,
                              Coordinator::HowLost how_lost) {
  const bool was_member = peers_.at(id).has_joined;
  peers_.erase(id);
  if (was_member)
    coordinator_.lose(id, how_lost, how, now);
  else
    std::erase(strangers_, id);
}

}  // namespace torchbridge
