#include "bridge/coordination/coordinator_client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bridge/base/message_text.h"
#include "bridge/core/agent_command.h"
#include "bridge/net/address.h"
#include "bridge/net/peer_user.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{50}, kLongestPause{1000};
constexpr std::chrono::seconds kConnectTimeout{
    5};  // of one attempt: a host that is down does not answer
constexpr std::chrono::seconds kAnswerTimeout{
    10};  // a coordinator answers at once, what else listens there may not

}  // namespace

CoordinatorClient::CoordinatorClient(Endpoint coordinator, RunKey key, Join join, Time now,
                                     Time deadline, bool is_first)
    : coordinator_(std::move(coordinator)),
      key_(std::move(key)),
      join_(std::move(join)),
      deadline_(deadline),
      is_first_(is_first),
      due_(now),
      pause_(kFirstPause) {
  begin(now);
}

int CoordinatorClient::descriptor() const {
  if (state_ == State::kConnecting) return connecting_.descriptor();
  return is_connected() ? connection_.descriptor() : -1;
}

std::uint32_t CoordinatorClient::events() const {
  return state_ == State::kConnecting ? static_cast<std::uint32_t>(EPOLLOUT) : connection_.events();
}

CoordinatorClient::Time CoordinatorClient::next_deadline() const {
  if (state_ == State::kFailed) return Time::max();
  return state_ == State::kJoined ? due_ : std::min(due_, deadline_);
}

void CoordinatorClient::begin(Time now) {
  const auto address = numeric_address(coordinator_.host);
  if (!address) return try_again(address.error().message, now);
  connecting_to_ = {*address, coordinator_.port};
  auto socket = begin_connecting(connecting_to_);
  if (!socket) return on_unreached(socket.error().message, now);
  connecting_ = std::move(*socket);
  state_ = State::kConnecting;
  due_ = now + kConnectTimeout;
}

void CoordinatorClient::carry(Time now) {
  if (state_ == State::kConnecting) on_connected(now);
  if (is_connected()) read(now);
  if (state_ == State::kFailed || now < next_deadline()) return;
  if (state_ == State::kJoined && now > after(due_, Seconds(keep_alive_.keep_alive_interval))) {
    // This process had no CPU for a while, as the coordinator on the same host.
    due_ = after(now, keep_alive());
  } else if (state_ == State::kJoined) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(keep_alive()).count();
    fail(formatted("the coordinator at {} sent nothing for {} s", target(), seconds));
  } else if (state_ == State::kPausing) {
    now < deadline_ ? begin(now) : fail(problem_);
  } else if (state_ == State::kConnecting) {
    on_unreached(cannot_connect(connecting_to_, ETIMEDOUT).message, now);
  } else {
    on_unreached(formatted("{} does not answer", target()), now);
  }
}

// Also where the socket is not ready yet: then there is no error, and nothing can be sent.
void CoordinatorClient::on_connected(Time now) {
  const auto reached = connected(connecting_, connecting_to_);
  if (!reached) return on_unreached(reached.error().message, now);
  if (!peer_host(connecting_)) return;
  has_reached_ = true;
  own_address_ = bound_host(connecting_).value_or("");
  connection_ = LineConnection(std::move(connecting_));
  state_ = State::kGreeting;
  due_ = now + kAnswerTimeout;
}

void CoordinatorClient::read(Time now) {
  connection_.flush();
  const auto lines =
      connection_.receive(state_ == State::kJoined ? kLongestLine : kLongestFirstLine);
  if (!lines && state_ == State::kJoined)
    return fail(formatted("the coordinator at {} {}", target(), lines.error().message));
  // A proxy in front of a coordinator that is not there yet accepts all the same.
  if (!lines && is_first_ && state_ == State::kGreeting && connection_.unfinished().empty())
    return on_unreached(formatted("{} accepts connections and closes them: node 0 has not started "
                                  "behind it (with c10d it needs --rdzv-conf is_host=true), or "
                                  "another program has the port",
                                  target()),
                        now);
  if (!lines)
    return state_ == State::kProving ? on_wrong_answer(now, refused_proof(target(), key_).message)
                                     : on_wrong_answer(now);
  for (const std::string& line : *lines) {
    if (state_ == State::kGreeting) {
      prove(line, now);
    } else if (state_ == State::kProving) {
      join(line, now);
    } else if (const auto message = parse_message(line)) {
      receive(*message, now);
    } else {
      on_wrong_answer(now);
    }
    if (!is_connected()) return;
  }
  if (state_ == State::kJoined && !lines->empty()) {
    due_ = after(now, keep_alive());
  }
}

void CoordinatorClient::prove(const std::string& challenge, Time now) {
  const auto protocol = protocol_of(challenge);
  if (!protocol) return on_wrong_answer(now);
  if (*protocol != kAgentProtocol) {
    return on_wrong_answer(now, formatted("the torchbridge at {} uses protocol {}, and this one "
                                          "{}: install one version on all nodes",
                                          target(), *protocol, kAgentProtocol));
  }
  std::string nonce = random_token();
  if (nonce.empty()) return try_again("the kernel of this node has no random numbers yet", now);
  proof_.emplace(key_, ConnectionPurpose::kAgent, challenge, std::move(nonce));
  connection_.send(proof_->answer() + "\n");
  state_ = State::kProving;
}

void CoordinatorClient::join(const std::string& proof, Time now) {
  if (!proof_->is_coordinator(proof)) {
    return on_wrong_answer(
        now, formatted("the program at {} cannot prove that it coordinates this run: another user "
                       "may have the port: choose another with --rdzv-endpoint",
                       target()));
  }
  const PeerUser user =
      key_.has_token() ? PeerUser::kThisUser : user_of_peer(connection_.descriptor());
  if (user == PeerUser::kAnotherUser) {
    return on_wrong_answer(
        now, formatted("{} is another user's port: choose another with --rdzv-endpoint, or give "
                       "all nodes the same --rdzv-token-file or {}",
                       target(), kTokenVariable));
  }
  knows_coordinator_ = user == PeerUser::kThisUser;
  connection_.send(line_of(join_));
  state_ = State::kJoining;
}

void CoordinatorClient::receive(const AgentMessage& message, Time now) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    keep_alive_ = *welcome;
    state_ = State::kJoined;
  } else if (const auto* rejected = std::get_if<Rejected>(&message)) {
    // What may pass, as a node that is not yet known to be lost, does so within a keep-alive.
    if (!rejected_until_) rejected_until_ = after(now, Seconds(rejected->retry_seconds));
    rejection_ = formatted("{} rejects this node: {}", target(), rejected->reason);
    try_again(rejection_, now);
  } else if (const auto* alive = std::get_if<Alive>(&message)) {
    send(Alive{clock_now(), alive->clock});
  } else {
    messages_.push_back(message);
  }
}

void CoordinatorClient::send(const AgentMessage& message) {
  if (state_ == State::kJoined) connection_.send(line_of(message));
}

// A coordinator that is about to end closes its connections too, and a crowded one some whose proof
// it has not read yet.
void CoordinatorClient::on_wrong_answer(Time now, const std::string& problem) {
  const int most = state_ == State::kProving ? 6 : 3;
  if (++wrong_answers_ < most) return try_again(problem, now);
  is_rejected_ = state_ == State::kProving;
  fail(problem);
}

void CoordinatorClient::on_unreached(const std::string& problem, Time now) {
  if (is_first_ && !rejected_until_) unreached_ = connecting_to_.host;
  try_again(problem, now);
}

void CoordinatorClient::try_again(const std::string& problem, Time now) {
  connecting_ = Socket();
  connection_ = LineConnection();
  if (rejected_until_ && now >= *rejected_until_) {  // also where the run has ended meanwhile
    is_rejected_ = true;
    return fail(rejection_);
  }
  const bool is_gone = !is_first_ && problem.ends_with(std::strerror(ECONNREFUSED));
  if (now >= deadline_ || is_gone) return fail(problem);
  problem_ = problem;
  state_ = State::kPausing;
  due_ = now + pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void CoordinatorClient::fail(const std::string& problem) {
  was_joined_ = state_ == State::kJoined;
  failure_ = problem;
  state_ = State::kFailed;
  connecting_ = Socket();
  connection_ = LineConnection();
}

}  // namespace torchbridge
