#include <torchbridge/net/node_gathering.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include <torchbridge/core/env_map.h>
#include <torchbridge/net/did_not_come.h>
#include <torchbridge/net/socket.h>
#include <torchbridge/net/values.h>

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLongestPacket = 64 * 1024;
constexpr std::size_t kLongestAnswer = std::size_t{1} << 30;
constexpr std::chrono::milliseconds kWaiting{1000};
constexpr std::chrono::milliseconds kGrace{2000};  // the first rank of a node may hear at its timeout what went wrong elsewhere
constexpr std::chrono::microseconds kFirstPause{200}, kLongestPause{1000};

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count() + 1, 0));
}

// A name in the kernel's table of sockets, not a file: nothing is left behind when the processes end.
struct SocketName {
  explicit SocketName(const std::string& key) {
    std::uint64_t first = 0xcbf29ce484222325, second = 0x84222325cbf29ce4;  // FNV-1a from two starts
    for (const char c : key) {
      first = (first ^ static_cast<unsigned char>(c)) * 0x100000001b3;
      second = (second ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "torchbridge/%u/%016llx%016llx", geteuid(),
                                     static_cast<unsigned long long>(first), static_cast<unsigned long long>(second));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size;
};

bool is_of_this_user(const Socket& peer) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return getsockopt(peer.descriptor(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == geteuid();
}

// A packet, or nothing where the peer hung up, kept silent until the deadline, or sent too much.
std::string receive(const Socket& peer, Clock::time_point deadline) {
  pollfd ready{peer.descriptor(), POLLIN, 0};
  if (poll(&ready, 1, milliseconds_until(deadline)) <= 0) return {};
  std::string packet(kLongestPacket, '\0');
  const auto size = recv(peer.descriptor(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
  packet.resize(size > 0 && static_cast<std::size_t>(size) <= kLongestPacket ? size : 0);
  return packet;
}

bool send_packet(const Socket& peer, const std::string& packet) {
  return send(peer.descriptor(), packet.data(), packet.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
}

// A first packet says how long the answer is; it may be the table of a large job.
bool send_answer(const Socket& peer, const std::string& kind, const std::string& answer) {
  const timeval limit{5, 0};  // for a peer that was stopped
  setsockopt(peer.descriptor(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (!send_packet(peer, kind + std::to_string(answer.size()))) return false;
  for (std::size_t sent = 0; sent < answer.size(); sent += kLongestPacket) {
    if (!send_packet(peer, answer.substr(sent, kLongestPacket))) return false;
  }
  return true;
}

constexpr const char *kValues = "values ", *kError = "error ";

// Nothing where the peer hung up before the answer was complete, or kept silent.
std::optional<Result<std::vector<std::string>>> receive_answer(const Socket& peer, Clock::time_point deadline) {
  const std::string head = receive(peer, deadline);
  const bool is_error = head.starts_with(kError);
  const auto blank = head.find(' ');
  const auto size = blank == head.npos ? std::nullopt : parse_integer(std::string_view(head).substr(blank + 1), 1, kLongestAnswer);
  if (!size) return std::nullopt;
  std::string answer;
  while (answer.size() < static_cast<std::size_t>(*size)) {
    const std::string packet = receive(peer, deadline);
    if (packet.empty()) return std::nullopt;
    answer += packet;
  }
  if (is_error) return Error{answer};
  return split_values(answer);
}

class NodeGathering {
 public:
  NodeGathering(const std::string& key, int rank, int size, const Beyond& beyond)
      : name_(key), rank_(rank), size_(size), beyond_(beyond) {}

  Result<std::vector<std::string>> serve(const std::string& value, std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    const auto listener = listen_until(deadline);
    if (!listener) return listener.error();
    std::vector<std::string> values(size_);
    std::vector<Socket> peers(size_);
    values[0] = value;
    auto next_word = Clock::now() + std::min(kWaiting, timeout / 8);
    for (int missing = size_ - 1; missing > 0;) {
      pollfd ready{listener->descriptor(), POLLIN, 0};
      if (poll(&ready, 1, milliseconds_until(beyond_.waiting ? std::min(deadline, next_word) : deadline)) == 0) {
        if (Clock::now() >= deadline) return ranks_missing(peers, timeout);
        beyond_.waiting(values);
        next_word = Clock::now() + kWaiting;
        continue;
      }
      Socket peer(accept4(listener->descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.open() || !is_of_this_user(peer)) continue;
      // A peer sends as soon as it is connected; one that was stopped just then must not hold up the others for good.
      const auto packet = split_values(receive(peer, std::min(deadline, Clock::now() + std::chrono::seconds(5))));
      const auto rank = packet.size() == 2 ? parse_integer(packet[0], 1, size_ - 1) : std::nullopt;
      // A rank that is here already has come for the next rendezvous: it tries again when this one is over.
      if (!rank || peers[*rank].open()) continue;
      values[*rank] = packet[1];
      peers[*rank] = std::move(peer);
      --missing;
    }
    auto answer = beyond_.answer ? beyond_.answer(std::move(values)) : std::move(values);
    const std::string text = answer ? join_values(*answer) : answer.error().message;
    for (int rank = 1; rank < size_; ++rank) {
      if (!send_answer(peers[rank], answer ? kValues : kError, text)) return Error{"rank " + std::to_string(rank) + " ended while the ranks of this node met"};
    }
    return answer;
  }

  Result<std::vector<std::string>> ask(const std::string& value, std::chrono::milliseconds timeout) const {
    const auto deadline = Clock::now() + timeout;
    auto pause = kFirstPause;
    while (Clock::now() < deadline) {
      const Socket server(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (connect(server.descriptor(), name_.get(), name_.size) == 0 && is_of_this_user(server) &&
          send_packet(server, join_values({std::to_string(rank_), value}))) {
        if (auto answer = receive_answer(server, beyond_.answer ? deadline + kGrace : deadline)) return std::move(*answer);
      }
      std::this_thread::sleep_for(pause);  // there is no way to wait for somebody to listen
      pause = std::min(2 * pause, kLongestPause);
    }
    return Error{(beyond_.answer ? "local rank 0" : "rank 0, on this node,") + std::string(" did not answer within ") + seconds(timeout) +
                 ": does every rank run this program, and do all share one network namespace?"};
  }

 private:
  // The name may still be taken by the rendezvous before this one.
  Result<Socket> listen_until(Clock::time_point deadline) const {
    Socket listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    auto pause = kFirstPause;
    while (bind(listener.descriptor(), name_.get(), name_.size) != 0) {
      if (errno != EADDRINUSE || Clock::now() >= deadline) {
        return Error{std::string("cannot listen for the other ranks of this node: ") + std::strerror(errno) +
                     (errno == EADDRINUSE ? ": another process of this job says that it is rank 0" : "")};
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    if (listen(listener.descriptor(), size_) != 0) return Error{std::string("cannot listen: ") + std::strerror(errno)};
    return listener;
  }

  Error ranks_missing(const std::vector<Socket>& peers, std::chrono::milliseconds timeout) const {
    std::vector<bool> came(peers.size(), true);
    for (std::size_t rank = 1; rank < peers.size(); ++rank) came[rank] = peers[rank].open();
    return {(beyond_.answer ? "on this node, counted by local rank, " : "") + did_not_come(came, timeout).message};
  }

  SocketName name_;
  int rank_, size_;
  const Beyond& beyond_;
};

}  // namespace

Result<std::vector<std::string>> gather_on_node(const std::string& key, int rank, int size, const std::string& value,
                                                std::chrono::milliseconds timeout, const Beyond& beyond) {
  NodeGathering gathering(key, rank, size, beyond);
  return rank == 0 ? gathering.serve(value, timeout) : gathering.ask(value, timeout);
}

}  // namespace torchbridge
