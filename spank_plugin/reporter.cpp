#include "reporter.h"

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

#include <torchbridge/core/env_map.h>
#include <torchbridge/net/random_token.h>

namespace torchbridge {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kTaken = '+';  // srun's answer to a report
constexpr std::size_t kMaxConnections = 64;  // the others wait in the listener's queue
constexpr milliseconds kConnectionLimit{1000}, kStopLimit{400};
constexpr std::size_t kMaxMessage = kTokenSize + Report::kMaxText + 64;

Result<Socket> listen_everywhere(int port) {
  auto listener = listen_on({"::", port});  // IPv4 too
  if (!listener) listener = listen_on({"0.0.0.0", port});
  return listener;
}

// The srun commands of a host share the range: not all begin at its start.
Result<Socket> listen_within(int low, int high) {
  const int count = high - low + 1;
  auto listener = listen_everywhere(low + getpid() % count);
  for (int i = 1; i < count && !listener; ++i) listener = listen_everywhere(low + (getpid() + i) % count);
  return listener;
}

// For all who have the socket: srun keeps a copy of itself that ends the step after it.
void stop_listening(Socket& listener) {
  shutdown(listener.descriptor(), SHUT_RDWR);
  listener = Socket();
}

int milliseconds_until(Clock::time_point time) {
  return static_cast<int>(std::max<std::int64_t>(std::chrono::ceil<milliseconds>(time - Clock::now()).count(), 0));
}

}  // namespace

struct Reporter::Connection {
  Socket socket;
  Clock::time_point deadline;
  std::string received;
  bool is_known = false;  // the token was right
};

bool send_report(const ReporterAddress& reporter, const Report& report) {
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

std::unique_ptr<Reporter> Reporter::open(int low, int high) {
  auto reporter = std::make_unique<Reporter>();
  auto listener = listen_within(low, std::max(low, high));
  const auto port = listener ? bound_port(*listener) : Result<int>(listener.error());
  if (!port) return nullptr;
  fcntl(listener->descriptor(), F_SETFL, O_NONBLOCK);
  reporter->owner_ = getpid();
  reporter->listener_ = std::move(*listener);
  reporter->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reporter->port_ = *port;
  reporter->token_ = random_token();
  if (reporter->token_.empty() || !reporter->wake_.open()) return nullptr;
  return reporter;
}

Reporter::~Reporter() { stop(); }

void Reporter::start(std::function<void(const std::string&)> say, std::function<void()> end_step) {
  if (server_.joinable()) return;
  say_ = std::move(say);
  end_step_ = std::move(end_step);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    server_ = std::thread([this] { serve(); });
  } catch (const std::exception&) {
    stop_listening(listener_);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<std::string> Reporter::stop() {
  const bool is_owner = owner_ == getpid();
  if (is_owner) eventfd_write(wake_.descriptor(), 1);
  for (std::thread* thread : {&server_, &ender_}) {
    if (thread->joinable()) is_owner ? thread->join() : thread->detach();
  }
  if (!is_owner) return std::nullopt;
  stop_listening(listener_);
  if (!first_ || step_must_end_) return std::nullopt;
  return first_->text;
}

void Reporter::serve() try {
  std::vector<Connection> connections;
  std::optional<Clock::time_point> end;  // once it is to stop
  while (true) {
    const auto now = Clock::now();
    std::erase_if(connections, [&](const Connection& connection) { return connection.deadline <= now; });
    if (end && now >= *end) return;
    const bool has_room = connections.size() < kMaxConnections;
    std::vector<pollfd> watched = {{end ? -1 : wake_.descriptor(), POLLIN, 0},
                                   {has_room ? listener_.descriptor() : -1, POLLIN, 0}};
    int timeout = end && connections.empty() ? 0 : -1;
    for (const auto& connection : connections) {
      watched.push_back({connection.socket.descriptor(), POLLIN, 0});
      const int left = milliseconds_until(end ? std::min(*end, connection.deadline) : connection.deadline);
      timeout = timeout < 0 ? left : std::min(timeout, left);
    }
    const int ready = poll(watched.data(), watched.size(), timeout);
    if (ready < 0 && errno != EINTR) return;
    if (ready == 0 && end && connections.empty()) return;
    if (ready <= 0) continue;
    if (watched[0].revents != 0) end = Clock::now() + kStopLimit;
    std::size_t place = 2;
    std::erase_if(connections,
                  [&](Connection& connection) { return watched[place++].revents != 0 && !receive(connection); });
    if (watched[1].revents != 0) take_new(connections);
  }
} catch (const std::exception&) {
  stop_listening(listener_);  // out of memory: the nodes are refused, and go another way
}

void Reporter::take_new(std::vector<Connection>& connections) {
  while (connections.size() < kMaxConnections) {
    Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) return;
    connections.push_back({std::move(socket), Clock::now() + kConnectionLimit, {}});
  }
}

bool Reporter::receive(Connection& connection) {
  char bytes[4096];
  while (true) {
    // Not a byte beyond the token, and none compared, before all of it is there.
    const std::size_t wanted = connection.is_known ? sizeof bytes : kTokenSize - connection.received.size();
    const ssize_t size = recv(connection.socket.descriptor(), bytes, wanted, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) break;
    connection.received.append(bytes, static_cast<std::size_t>(size));
    if (connection.received.size() > kMaxMessage) return false;
    if (connection.is_known || connection.received.size() < kTokenSize) continue;
    if (connection.received != token_) return false;
    connection.is_known = true;
  }
  if (connection.is_known && heed(connection.received)) send(connection.socket.descriptor(), &kTaken, 1, MSG_NOSIGNAL);
  return false;
}

bool Reporter::heed(const std::string& message) {
  const auto end = std::min(message.find('\n'), message.size());
  if (end <= kTokenSize) return false;
  const auto time = parse_integer(std::string_view(message).substr(kTokenSize + 1, end - kTokenSize - 1), 0, INT64_MAX);
  const auto kind = static_cast<Report::Kind>(message[kTokenSize]);
  if (!time || end == message.size()) return false;
  const Report report{kind, std::chrono::system_clock::time_point(microseconds(*time)), message.substr(end + 1)};
  if (kind == Report::Kind::kStepMustEnd) {
    if (!std::exchange(step_must_end_, true)) end_step_because(report.text);
  } else if (!first_ || report.time < first_->time) {
    first_ = report;  // of two nodes whose tasks fail within a few milliseconds the later one may be heard first
  }
  return true;
}

void Reporter::end_step_because(const std::string& reason) {
  say_(reason);
  try {
    ender_ = std::thread(end_step_);  // the controller may take its time, and thousands of nodes report meanwhile
  } catch (const std::exception&) {
    end_step_();
  }
}

}  // namespace torchbridge
