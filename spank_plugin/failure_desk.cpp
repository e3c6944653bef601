#include "failure_desk.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>

#include <torchbridge/net/random_token.h>

namespace torchbridge {
namespace {

constexpr std::size_t kMaxReport = 1 << 16;

// What was sent, at most `kMaxReport`; a sender that says nothing is given up soon.
std::string receive(const Socket& sender) {
  const timeval patience{0, 200'000};
  setsockopt(sender.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string text;
  char bytes[4096];
  ssize_t size = 0;
  while (text.size() < kMaxReport && (size = recv(sender.descriptor(), bytes, sizeof bytes, 0)) > 0) {
    text.append(bytes, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

std::optional<DeskAddress> DeskAddress::from(const EnvMap& environment) {
  const auto value = environment.get(kVariable);
  const auto host = environment.get("SLURM_LAUNCH_NODE_IPADDR");
  const auto blank = value ? value->find(' ') : std::string_view::npos;
  if (!host || blank == std::string_view::npos) return std::nullopt;
  const auto port = parse_integer(value->substr(0, blank), 1, 65535);
  const auto token = value->substr(blank + 1);
  if (!port || token.size() != kTokenSize) return std::nullopt;
  return DeskAddress{std::string(*host), static_cast<int>(*port), std::string(token)};
}

Result<FailureDesk> FailureDesk::open() {
  FailureDesk desk;
  auto listener = listen_on({"::", 0});  // IPv4 too
  if (!listener) listener = listen_on({"0.0.0.0", 0});
  if (!listener) return listener.error();
  const auto port = bound_port(*listener);
  if (!port) return port.error();
  fcntl(listener->descriptor(), F_SETFL, O_NONBLOCK);
  desk.listener_ = std::move(*listener);
  desk.port_ = *port;
  desk.token_ = random_token();
  if (desk.token_.empty()) return Error{"the kernel gives no random bytes"};
  return desk;
}

std::string FailureDesk::variable() const { return std::to_string(port_) + " " + token_; }

// Of two nodes whose tasks fail within a few milliseconds the later one may be heard first.
std::optional<std::string> FailureDesk::first_report() const {
  std::optional<std::string> first;
  std::int64_t first_time = INT64_MAX;
  while (true) {
    const Socket sender(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!sender.open()) return first;
    const std::string message = receive(sender);
    if (!message.starts_with(token_ + "\n")) continue;
    const auto end = message.find('\n', token_.size() + 1);
    const auto time = parse_integer(message.substr(token_.size() + 1, end - token_.size() - 1), 0, INT64_MAX - 1);
    if (end == std::string::npos || !time || *time >= first_time) continue;
    first_time = *time;
    first = message.substr(end + 1);
  }
}

Status tell_desk(const DeskAddress& desk, std::chrono::system_clock::time_point time, const std::string& text) {
  const auto socket = connect_to({desk.host, desk.port}, std::chrono::seconds(1));
  if (!socket) return socket.error();
  const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch());
  std::string message = desk.token + "\n" + std::to_string(since_epoch.count()) + "\n" + text;
  message.resize(std::min(message.size(), kMaxReport));
  const ssize_t sent = send(socket->descriptor(), message.data(), message.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(message.size())) return Error{"srun hung up"};
  return Ok{};
}

}  // namespace torchbridge
