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

#include "bridge/base/constant_time.h"
#include "bridge/base/env_map.h"
#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kAccepted = '+';               // srun's answer to a report
constexpr std::size_t kProofSize = 64;        // hexadecimal digits, of what follows them
constexpr std::size_t kMaxConnections = 256;  // more would take the descriptors of srun
constexpr milliseconds kConnectionLimit{1000}, kStopLimit{400};
constexpr std::size_t kMaxMessage = kProofSize + StepReport::kMaxText + 64;
// Slurm has at most 65,533 nodes, and each sends one that is accepted.
constexpr std::size_t kMaxHangs = 1 << 16;

// Each srun of a host begins at another port of the range, so that they do not all try the same
// ones first.
std::optional<Socket> listen_within(int low, int high) {
  const int count = high - low + 1;
  for (int i = 0; i < count; ++i) {
    // "::" also accepts IPv4; 0.0.0.0 is for hosts without IPv6.
    for (const char* all : {"::", "0.0.0.0"}) {
      if (auto listener = listen_on({all, low + (getpid() + i) % count}))
        return std::move(*listener);
    }
  }
  return std::nullopt;
}

// shutdown() ends listening in all processes that have the socket: srun forks a child that outlives
// it.
void stop_listening(Socket& socket) {
  shutdown(socket.descriptor(), SHUT_RDWR);
  socket = Socket();
}

std::string proof_of(std::string_view content, const std::string& key) {
  return hex_of(hmac_sha256(key, content));
}

}  // namespace

std::string report_key(const std::string& secret) { return hmac_sha256(secret, "report"); }

struct FailureListener::Connection {
  Socket socket;
  Clock::time_point deadline;
  std::string received{};
};

bool send_report(const FailureListenerAddress& listener, const StepReport& report) {
  constexpr milliseconds kConnecting{1200};  // the kernel repeats a lost SYN after a second
  constexpr timeval kAnswering{1, 0};
  constexpr socklen_t kSize = sizeof kAnswering;
  if (listener.port == 0) return false;
  const auto socket = connect_to({listener.host, listener.port}, kConnecting);
  if (!socket) return false;
  const int descriptor = socket->descriptor();
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO})
    setsockopt(descriptor, SOL_SOCKET, option, &kAnswering, kSize);
  const auto time =
      std::chrono::duration_cast<microseconds>(report.time.time_since_epoch()).count();
  const std::string content = static_cast<char>(report.kind) + std::to_string(time) + "\n" +
                              report.text.substr(0, StepReport::kMaxText);
  const std::string message = proof_of(content, listener.key) + content;
  const ssize_t sent = send(descriptor, message.data(), message.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(message.size())) return false;
  shutdown(descriptor, SHUT_WR);
  char answer = 0;
  return recv(descriptor, &answer, 1, 0) == 1 && answer == kAccepted;
}

std::unique_ptr<FailureListener> FailureListener::open(std::string key, int low, int high) {
  auto listener = std::make_unique<FailureListener>();
  auto socket = listen_within(low, std::max(low, high));
  if (!socket) return nullptr;
  fcntl(socket->descriptor(), F_SETFL, O_NONBLOCK);
  listener->socket_ = std::move(*socket);
  const auto port = bound_port(listener->socket_);
  listener->wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener->key_ = std::move(key);
  if (!port || !listener->wake_.open()) return nullptr;
  listener->port_ = *port;
  return listener;
}

FailureListener::~FailureListener() { stop(); }

void FailureListener::start(StepActions actions) {
  if (server_.joinable()) return;
  actions_ = std::move(actions);
  server_ = std::thread([this] { serve(); });
}

std::optional<std::string> FailureListener::stop() {
  is_stopping_ = true;
  eventfd_write(wake_.descriptor(), 1);
  if (server_.joinable()) server_.join();
  if (ender_.joinable()) ender_.join();
  stop_listening(socket_);
  if (!first_ || step_must_end_ || is_logged_) return std::nullopt;
  return first_->text;
}

void FailureListener::serve() try {
  constexpr int kTickMs = 50;  // of the limits, while there are connections
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::vector<Connection> connections;
  std::optional<Clock::time_point> end;  // set by stop()
  while (!end || (!connections.empty() && Clock::now() < *end)) {
    std::vector<pollfd> watched = {{end ? -1 : wake_.descriptor(), POLLIN, 0},
                                   {socket_.descriptor(), POLLIN, 0}};
    for (const auto& connection : connections)
      watched.push_back({connection.socket.descriptor(), POLLIN, 0});
    const bool has_limits = !connections.empty() || failure_deadline() || ender_.joinable();
    poll(watched.data(), watched.size(), has_limits ? kTickMs : -1);
    if (watched[0].revents != 0) end = Clock::now() + kStopLimit;
    forget_hang();
    const auto now = Clock::now();
    std::size_t index = 2;
    std::erase_if(connections, [&](Connection& connection) {
      const short events = watched[index++].revents;
      return connection.deadline <= now || (events != 0 && !receive(connection));
    });
    accept_connections(connections);
    const auto deadline = failure_deadline();
    if (!end && deadline && now >= *deadline) {
      ender_ = std::thread([this, report = first_ ? *first_ : *hang_, limit = limit_of_failure(),
                            has_failure = failed_at_.has_value()] {
        end_after_failure(report, limit, has_failure);
      });
    }
  }
} catch (const std::exception&) {
  stop_listening(socket_);  // out of memory: the nodes' connections fail, and the nodes ask the
                            // controller themselves
}

void FailureListener::accept_connections(std::vector<Connection>& connections) {
  // Then the connections are read: of a large step thousands may report at once, before their bytes
  // have arrived.
  constexpr int kAtOnce = 64, kPauseMs = 10;
  for (int i = 0; i < kAtOnce; ++i) {
    Socket socket(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) {
      // It stays ready where there are no descriptors: not a loop without a pause.
      if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kPauseMs);
      return;
    }
    Connection connection{std::move(socket), Clock::now() + kConnectionLimit};
    if (!receive(connection)) continue;  // a node sends its report at once
    if (connections.size() >= kMaxConnections)
      connections.erase(connections.begin());  // the oldest
    connections.push_back(std::move(connection));
  }
}

bool FailureListener::receive(Connection& connection) {
  char bytes[4096];
  std::string& received = connection.received;
  while (received.size() <= kMaxMessage) {
    const ssize_t size = recv(connection.socket.descriptor(), bytes, sizeof bytes, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) {
      if (take_report(received)) send(connection.socket.descriptor(), &kAccepted, 1, MSG_NOSIGNAL);
      return false;
    }
    received.append(bytes, static_cast<std::size_t>(size));
  }
  return false;
}

bool FailureListener::take_report(std::string_view message) {
  // A time_point counts nanoseconds: later microseconds would overflow it.
  constexpr std::int64_t kLatest =
      std::chrono::floor<microseconds>(std::chrono::system_clock::duration::max()).count();
  if (message.size() <= kProofSize) return false;
  const std::string_view proof = message.substr(0, kProofSize);
  std::string_view content = message.substr(kProofSize);
  if (!is_equal_in_constant_time(proof, proof_of(content, key_))) return false;
  const auto kind = static_cast<StepReport::Kind>(content.front());
  content.remove_prefix(1);
  const auto time = parse_integer(take_until(content, '\n'), 0, kLatest);
  if (!time) return false;
  const StepReport report{kind, std::chrono::system_clock::time_point(microseconds(*time)),
                          std::string(content)};
  if (kind == StepReport::Kind::kStepMustEnd && !std::exchange(step_must_end_, true)) {
    actions_.log(report.text);
    // A slow controller must not block the reports of thousands of nodes.
    if (!ender_.joinable()) ender_ = std::thread(actions_.end_step);
  }
  if (kind == StepReport::Kind::kTaskAsksForRequeue) may_save_ = true;
  if (kind == StepReport::Kind::kTaskHangs && is_new_hang(proof) && !hang_) {
    hang_ = report;
    hang_taken_at_ = Clock::now();
  }
  if (kind != StepReport::Kind::kTaskFailed && kind != StepReport::Kind::kTaskEnded) return true;
  // Reports of two failures within a few milliseconds may arrive in the wrong order.
  if (!first_ || report.time < first_->time) first_ = report;
  if (kind == StepReport::Kind::kTaskEnded) may_save_ = true;
  if (kind == StepReport::Kind::kTaskFailed && !failed_at_) failed_at_ = Clock::now();
  return true;
}

// Of other kinds a repeated report changes nothing: only a hang is forgotten.
bool FailureListener::is_new_hang(std::string_view proof) {
  return hangs_.size() < kMaxHangs && hangs_.emplace(proof).second;
}

void FailureListener::forget_hang() {
  if (!has_forgotten_hang_.exchange(false)) return;
  ender_.join();
  hang_.reset();
  if (step_must_end_) ender_ = std::thread(actions_.end_step);  // asked for in the meantime
}

milliseconds FailureListener::limit_of_failure() const {
  return may_save_ ? std::max(*actions_.time_after_failure, actions_.while_saving)
                   : *actions_.time_after_failure;
}

std::optional<Clock::time_point> FailureListener::failure_deadline() const {
  if (!(failed_at_ || hang_) || !actions_.time_after_failure || step_must_end_ || ender_.joinable())
    return std::nullopt;
  const milliseconds limit = limit_of_failure();
  // The stop has lasted for that time when it is reported.
  const auto after_hang = hang_taken_at_ + limit - *actions_.time_after_failure;
  if (!failed_at_) return after_hang;
  return hang_ ? std::min(*failed_at_ + limit, after_hang) : *failed_at_ + limit;
}

void FailureListener::end_after_failure(const StepReport& report, milliseconds limit,
                                        bool has_failure) {
  constexpr milliseconds kShortest{100}, kLongest{10'000};
  const auto pause = static_cast<int>(std::clamp(limit, kShortest, kLongest).count());
  StepState state = actions_.state();
  while (state == StepState::kIsSuspended && has_failure && !is_stopping_) {
    pollfd stop{wake_.descriptor(), POLLIN, 0};
    if (poll(&stop, 1, pause) == 0) state = actions_.state();
  }
  if (is_stopping_ || state == StepState::kEnds) return;
  if (state == StepState::kIsSuspended) {
    has_forgotten_hang_ = true;
    return;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  is_logged_ = true;
  actions_.log(report.text);
  actions_.log(formatted(
      "the step still runs {} s later and is ended: on_failure=SECONDS|wait ends it later, or not",
      seconds));
  actions_.end_step();
}

}  // namespace torchbridge
