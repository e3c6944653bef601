#include "spank_plugin/failure_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "bridge/base/env_map.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kTaken = '+';                 // srun's answer to a report
constexpr std::size_t kMaxConnections = 64;  // the others wait in the listener's queue
constexpr milliseconds kConnectionLimit{1000}, kStopLimit{400};
constexpr std::size_t kMaxMessage = kTokenSize + Report::kMaxText + 64;

// The srun commands of a host share the range: not all begin at its start.
std::optional<Socket> listen_within(int low, int high) {
  const int count = high - low + 1;
  for (int i = 0; i < count; ++i) {
    for (const char* all : {"::", "0.0.0.0"}) {  // the first takes IPv4 too, where there is IPv6
      if (auto listener = listen_on({all, low + (getpid() + i) % count})) return std::move(*listener);
    }
  }
  return std::nullopt;
}

// For all who have the socket: srun keeps a copy of itself that ends the step after it.
void stop_listening(Socket& listener) {
  shutdown(listener.descriptor(), SHUT_RDWR);
  listener = Socket();
}

}  // namespace

struct FailureListener::Connection {
  Socket socket;
  Clock::time_point deadline;
  std::string received{};
};

bool send_report(const FailureListenerAddress& reporter, const Report& report) {
  constexpr milliseconds kConnecting{1200};  // the kernel tries again after a second
  constexpr timeval kAnswering{1, 0};
  constexpr socklen_t kSize = sizeof kAnswering;
  if (reporter.port == 0) return false;
  const auto socket = connect_to({reporter.host, reporter.port}, kConnecting);
  if (!socket) return false;
  const int descriptor = socket->descriptor();
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) setsockopt(descriptor, SOL_SOCKET, option, &kAnswering, kSize);
  const auto time = std::chrono::duration_cast<microseconds>(report.time.time_since_epoch()).count();
  const std::string message = reporter.token + static_cast<char>(report.kind) + std::to_string(time) + "\n" +
                              report.text.substr(0, Report::kMaxText);
  const ssize_t sent = send(descriptor, message.data(), message.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(message.size())) return false;
  shutdown(descriptor, SHUT_WR);
  char taken = 0;
  return recv(descriptor, &taken, 1, 0) == 1 && taken == kTaken;
}

std::unique_ptr<FailureListener> FailureListener::open(int low, int high) {
  auto reporter = std::make_unique<FailureListener>();
  auto listener = listen_within(low, std::max(low, high));
  if (!listener) return nullptr;
  fcntl(listener->descriptor(), F_SETFL, O_NONBLOCK);
  reporter->listener_ = std::move(*listener);
  const auto port = bound_port(reporter->listener_);
  reporter->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reporter->token_ = random_token();
  if (!port || reporter->token_.empty() || !reporter->wake_.open()) return nullptr;
  reporter->port_ = *port;
  return reporter;
}

FailureListener::~FailureListener() { stop(); }

void FailureListener::start(std::function<void(const std::string&)> say, std::function<void()> end_step) {
  if (server_.joinable()) return;
  say_ = std::move(say);
  end_step_ = std::move(end_step);
  server_ = std::thread([this] { serve(); });
}

std::optional<std::string> FailureListener::stop() {
  eventfd_write(wake_.descriptor(), 1);
  if (server_.joinable()) server_.join();
  if (ender_.joinable()) ender_.join();
  stop_listening(listener_);
  if (!first_ || step_must_end_) return std::nullopt;
  return first_->text;
}

void FailureListener::serve() try {
  constexpr int kTickMs = 50;  // of the limits, while there are connections
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::vector<Connection> connections;
  std::optional<Clock::time_point> end;  // once it is to stop
  while (!end || (!connections.empty() && Clock::now() < *end)) {
    const bool has_room = connections.size() < kMaxConnections;
    std::vector<pollfd> watched = {{end ? -1 : wake_.descriptor(), POLLIN, 0},
                                   {has_room ? listener_.descriptor() : -1, POLLIN, 0}};
    for (const auto& connection : connections) watched.push_back({connection.socket.descriptor(), POLLIN, 0});
    poll(watched.data(), watched.size(), connections.empty() ? -1 : kTickMs);
    if (watched[0].revents != 0) end = Clock::now() + kStopLimit;
    const auto now = Clock::now();
    std::size_t place = 2;
    std::erase_if(connections, [&](Connection& connection) {
      const short events = watched[place++].revents;
      return connection.deadline <= now || (events != 0 && !receive(connection));
    });
    take_new(connections);
  }
} catch (const std::exception&) {
  stop_listening(listener_);  // no memory, no thread: the nodes are refused, and go another way
}

void FailureListener::take_new(std::vector<Connection>& connections) {
  while (connections.size() < kMaxConnections) {
    Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) return;
    connections.push_back({std::move(socket), Clock::now() + kConnectionLimit});
  }
}

bool FailureListener::receive(Connection& connection) {
  char bytes[4096];
  std::string& received = connection.received;
  while (received.size() <= kMaxMessage) {
    // Not a byte beyond the token, and none compared, before all of it is there.
    const std::size_t wanted = received.size() < kTokenSize ? kTokenSize - received.size() : sizeof bytes;
    const ssize_t size = recv(connection.socket.descriptor(), bytes, wanted, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) {
      if (heed(received)) send(connection.socket.descriptor(), &kTaken, 1, MSG_NOSIGNAL);
      return false;
    }
    received.append(bytes, static_cast<std::size_t>(size));
    if (received.size() == kTokenSize && received != token_) return false;
  }
  return false;
}

bool FailureListener::heed(const std::string& message) {
  const auto end = message.find('\n', kTokenSize + 1);
  if (end == message.npos) return false;
  const auto time = parse_integer(std::string_view(message).substr(kTokenSize + 1, end - kTokenSize - 1), 0, INT64_MAX);
  if (!time) return false;
  const auto kind = static_cast<Report::Kind>(message[kTokenSize]);
  const Report report{kind, std::chrono::system_clock::time_point(microseconds(*time)), message.substr(end + 1)};
  if (kind == Report::Kind::kStepMustEnd && !std::exchange(step_must_end_, true)) {
    say_(report.text);
    ender_ = std::thread(end_step_);  // the controller may take its time, and thousands of nodes report meanwhile
  }
  // Of two nodes whose tasks fail within a few milliseconds the later one may be heard first.
  if (kind == Report::Kind::kTaskEnded && (!first_ || report.time < first_->time)) first_ = report;
  return true;
}

}  // namespace torchbridge
