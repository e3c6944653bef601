#include "trainer_template/runtime/process_group/heartbeat.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "bridge/base/constant_time.h"
#include "bridge/base/env_map.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/binding/cpu_set.h"
#include "bridge/net/socket.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A client begins with "TOKEN RANK\n"; until then it may be anybody. The server takes one
// connection for each rank and sends kBeat at once. Afterwards both sides send kBeat; "left\n"
// before they close in order, or "broke\n" when the group broke; "lost LIST\n", also to the ranks
// of the list, for ranks that sent nothing in time. The server sends "gone LIST\n" for ranks that
// closed their connections, and "aborted\n" once another client has sent "broke\n". A client sends
// reports: "report SIZE NAME\n", and then so many bytes.
constexpr char kBeat = '.';
constexpr std::string_view kLost = "lost ", kGone = "gone ", kLeft = "left", kBroke = "broke",
                           kAborted = "aborted", kReport = "report ";
constexpr std::size_t kLongestLine = 64 * 1024;
constexpr std::size_t kLongestFirstLine = 16;  // after the token
constexpr int kHighestRank = (1 << 20) - 1;    // in a list, which becomes a vector
// More connections without the token are not kept: the oldest is closed, not the newest, which may
// be a rank's.
constexpr std::size_t kMaxUnidentified = 256;
constexpr int kBeatsInTimeout = 8;
constexpr milliseconds kHang{1000};
// Gloo finds most aborts by the connections that they close.
constexpr milliseconds kAfterAbort{100};

milliseconds limit_of(const HeartbeatOptions& options) {
  return options.timeout.count() > 0 ? options.timeout : options.stop_timeout;
}

bool send_text(const Socket& socket, std::string_view text) {
  const ssize_t sent =
      send(socket.descriptor(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A peer whose buffer is full does not read; its timeout shows that.
  return sent >= 0 || errno == EAGAIN || errno == EINTR;
}

// Lines must arrive before the backend's closed connections are noticed; Nagle's algorithm would
// keep a line back while a beat is on its way.
void disable_nagle(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

// The loop of either side: rank 0 has a listener and many peers, the others one.
class Heartbeat::Thread {
 public:
  struct Report {
    std::string name, text;
  };
  struct Peer {
    Socket socket;
    int rank = -1;  // until its first line
    bool has_token = false;
    bool left = false;
    std::string line;
    Report report;                           // that it sends
    std::optional<std::size_t> report_size;  // of its whole text; nothing: it sends none
    std::string outgoing;                    // of a report to it, which its buffer did not take yet
    Clock::time_point last_received = Clock::now();  // until the first line: when it was accepted
  };

  Thread(Socket listener, Endpoint endpoint, std::vector<Peer> peers, std::set<int> absent,
         HeartbeatOptions options)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        endpoint_(std::move(endpoint)),
        peers_(std::move(peers)),
        absent_(std::move(absent)),
        others_(absent_.size()),
        is_watching_(options_.timeout.count() > 0),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this] { run(); }) {}

  ~Thread() { stop(); }

  const Endpoint& endpoint() const { return endpoint_; }
  milliseconds limit() const { return limit_of(options_); }

  std::vector<int> lost() const {
    const std::scoped_lock lock(mutex_);
    return lost_;
  }
  bool hung_up() const {
    const std::scoped_lock lock(mutex_);
    return hung_up_;
  }
  std::vector<int> aborted_ranks() const {
    const std::scoped_lock lock(mutex_);
    return aborted_ranks_;
  }
  std::vector<int> closed() const {
    const std::scoped_lock lock(mutex_);
    return closed_;
  }
  bool wait_until_accepted() const {
    // A rank 0 that is stopped meanwhile is lost before.
    constexpr milliseconds kPause{1}, kLongest{30000};
    const auto deadline = Clock::now() + kLongest;
    while (!is_accepted_ && closed().empty() && lost().empty() && Clock::now() < deadline)
      std::this_thread::sleep_for(kPause);
    return is_accepted_;
  }
  void end_with(std::string_view last_line) {
    {
      const std::scoped_lock lock(mutex_);
      last_line_ = last_line;
    }
    stop();
  }
  void report(const std::string& name, const std::string& text) {
    {
      const std::scoped_lock lock(mutex_);
      to_report_ += formatted("{}{} {}\n", kReport, text.size(), name) + text;
    }
    wake();
  }
  std::optional<std::map<int, std::string>> take_reports(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    const auto is_of_name = [&](const auto& one) { return one.second.name == name; };
    if (static_cast<std::size_t>(std::ranges::count_if(reports_, is_of_name)) < others_)
      return std::nullopt;
    // One of each rank: all of this name.
    std::map<int, std::string> texts;
    for (auto& [rank, one] : reports_) texts[rank] = std::move(one.text);
    reports_.clear();
    return texts;
  }
  std::vector<int> closed_without_report(const std::string& name) const {
    const std::scoped_lock lock(mutex_);
    std::vector<int> ranks = closed_;
    std::erase_if(ranks, [&](int rank) {
      const auto found = reports_.find(rank);
      return found != reports_.end() && found->second.name == name;
    });
    return ranks;
  }
  void stop() {
    const std::scoped_lock lock(stop_mutex_);
    is_ending_ = true;
    wake();
    if (thread_.joinable()) thread_.join();
    listener_ = Socket();
    peers_.clear();
  }

 private:
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof one);
  }

  // From now on, if the run is to stop: before, nobody had to send anything.
  void watch_if_stopping() {
    if (is_watching_ || !options_.is_stopping || !options_.is_stopping()) return;
    is_watching_ = true;
    for (Peer& peer : peers_) peer.last_received = Clock::now();
  }

  // On a rank other than 0, whose one peer is rank 0.
  void take_own_reports() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(wake_.descriptor(), &count, sizeof count);
    const std::scoped_lock lock(mutex_);
    if (!peers_.empty()) peers_.front().outgoing += std::exchange(to_report_, {});
  }

  static void send_outgoing(Peer& peer) {
    const ssize_t sent = send(peer.socket.descriptor(), peer.outgoing.data(), peer.outgoing.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) peer.outgoing.erase(0, static_cast<std::size_t>(sent));
  }

  // Not into a report.
  static void send_line(Peer& peer, std::string_view line) {
    if (peer.outgoing.empty()) return void(send_text(peer.socket, line));
    if (line.size() > 1) peer.outgoing += line;  // a beat is not needed: the report is one
  }

  // To a rank: it takes the first for the proof that it is known.
  static void send_beat(Peer& peer) {
    if (peer.rank >= 0) send_line(peer, std::string_view(&kBeat, 1));
  }

  void run() {
    const milliseconds period = limit() / kBeatsInTimeout;
    auto next_beat = Clock::now(), last_turn = Clock::now();
    while (true) {
      std::vector<pollfd> waiting = {{wake_.descriptor(), POLLIN, 0},
                                     {can_accept_ ? listener_.descriptor() : -1, POLLIN, 0}};
      for (const Peer& peer : peers_) {
        const short events = peer.outgoing.empty() ? POLLIN : POLLIN | POLLOUT;
        waiting.push_back({peer.socket.descriptor(), events, 0});
      }
      const auto now = Clock::now();
      const auto next = first_abort_ ? std::min(next_beat, now + kAfterAbort) : next_beat;
      const auto left = std::chrono::ceil<milliseconds>(next - now);
      poll(waiting.data(), waiting.size(),
           static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      if (waiting[0].revents != 0) take_own_reports();
      if (is_ending_) return send_last_line();
      const bool was_stopped = Clock::now() - last_turn > limit() / 2;
      last_turn = Clock::now();
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (was_stopped) peers_[i].last_received = last_turn;
        if ((waiting[i + 2].revents & ~POLLOUT) != 0) receive(peers_[i]);
        if (!peers_[i].outgoing.empty()) send_outgoing(peers_[i]);
      }
      if (listener_.open() && waiting[1].revents != 0) accept_peers();
      close_listener_of_all();
      find_hang_ups();
      end_what_waits_after_abort();
      std::erase_if(peers_, [](const Peer& peer) { return !peer.socket.open(); });
      if (Clock::now() < next_beat) continue;
      // A failed send is ignored: a closed connection is noticed by reading, after the peer's last
      // line.
      for (Peer& peer : peers_) send_beat(peer);
      watch_if_stopping();
      find_timeouts();
      find_hang();
      can_accept_ = true;
      next_beat = Clock::now() + period;
    }
  }

  void send_last_line() {
    std::string last_line;
    {
      const std::scoped_lock lock(mutex_);
      last_line = last_line_;
    }
    if (last_line.empty()) return;
    if (listener_.open()) accept_peers();  // also to those that connected just now
    if (last_line == kBroke) receive_pending();
    for (Peer& peer : peers_) {
      send_line(peer, last_line + "\n");
      if (!peer.outgoing.empty()) send_outgoing(peer);
    }
  }

  // All that the others have sent by now.
  void receive_pending() {
    for (Peer& peer : peers_) {
      pollfd readable{peer.socket.descriptor(), POLLIN, 0};
      while (peer.socket.open() && poll(&readable, 1, 0) > 0) receive(peer);
    }
  }

  void accept_peers() {
    // At most so many in a turn: who connects again and again must not keep the ranks' heartbeats
    // from being read.
    for (std::size_t accepted = 0; accepted < kMaxUnidentified; ++accepted) {
      Socket socket(
          accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) {
        // No descriptors: at the next beat.
        can_accept_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        return;
      }
      disable_nagle(socket);
      peers_.push_back({.socket = std::move(socket)});
      // A rank has sent its line by now, and is not among those that are closed.
      receive(peers_.back());
      const auto is_unidentified = [](const Peer& peer) {
        return peer.socket.open() && peer.rank < 0;
      };
      if (static_cast<std::size_t>(std::ranges::count_if(peers_, is_unidentified)) >
          kMaxUnidentified)
        std::ranges::find_if(peers_, is_unidentified)->socket = Socket();
    }
  }

  // Every rank has identified itself: nobody else has a reason to connect, or to be connected.
  void close_listener_of_all() {
    if (!are_all_here_ || !listener_.open()) return;
    listener_ = Socket();
    for (Peer& peer : peers_) {
      if (peer.rank < 0) peer.socket = Socket();
    }
  }

  void receive(Peer& peer) {
    char bytes[4096];
    const bool has_token = peer.rank >= 0 || peer.has_token;
    // Reads no byte after the token, and compares none of it, before the token is complete.
    const std::size_t wanted =
        has_token ? sizeof bytes : std::min(options_.token.size() - peer.line.size(), sizeof bytes);
    const ssize_t size = recv(peer.socket.descriptor(), bytes, wanted, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
      peer.socket = Socket();
      return;
    }
    if (!has_token) return receive_token(peer, std::string_view(bytes, size));
    if (peer.rank >= 0) peer.last_received = Clock::now();
    if (peer.rank == 0) is_accepted_ = true;
    for (std::string_view rest(bytes, size); !rest.empty() && peer.socket.open();) {
      if (peer.report_size) {
        receive_report(peer, rest);
        continue;
      }
      const char c = rest.front();
      rest.remove_prefix(1);
      const bool between_lines = peer.line.empty() && peer.rank >= 0;
      if (between_lines && c == kBeat) continue;
      if (c != '\n' && peer.line.size() < (peer.rank >= 0 ? kLongestLine : kLongestFirstLine))
        peer.line += c;
      else
        handle_line(peer);
    }
  }

  // Takes what belongs to the report from the front of `rest`.
  void receive_report(Peer& peer, std::string_view& rest) {
    std::string& text = peer.report.text;
    const std::string_view part = rest.substr(0, *peer.report_size - text.size());
    text += part;
    rest.remove_prefix(part.size());
    if (text.size() < *peer.report_size) return;
    peer.report_size.reset();
    const std::scoped_lock lock(mutex_);
    reports_[peer.rank] = std::exchange(peer.report, {});
  }

  // "SIZE NAME"; a text without bytes is complete.
  void begin_report(Peer& peer, std::string_view words) {
    const auto size_end = words.find(' ');
    const auto size = parse_integer(words.substr(0, size_end), 0, kLongestReport);
    if (!size || size_end == words.npos || peer.rank <= 0) return void(peer.socket = Socket());
    peer.report = {.name = std::string(words.substr(size_end + 1)), .text = {}};
    peer.report_size = static_cast<std::size_t>(*size);
    std::string_view nothing;
    receive_report(peer, nothing);
  }

  void receive_token(Peer& peer, std::string_view bytes) {
    peer.line += bytes;
    if (peer.line.size() < options_.token.size()) return;
    peer.has_token = is_equal_in_constant_time(peer.line, options_.token);
    peer.line.clear();
    if (!peer.has_token) return void(peer.socket = Socket());  // not of this job
    receive(peer);
  }

  void handle_line(Peer& peer) {
    const std::string line = std::exchange(peer.line, {});
    if (peer.rank < 0) return identify(peer, line);
    const bool gone = line.starts_with(kGone);
    if (line.starts_with(kReport)) {
      begin_report(peer, std::string_view(line).substr(kReport.size()));
    } else if (line == kLeft) {
      peer.left = true;
    } else if (line == kBroke) {
      take_abort(peer);
    } else if (line == kAborted && peer.rank == 0) {
      note_abort();
    } else if (gone || line.starts_with(kLost)) {
      const auto ranks =
          parse_number_list(std::string_view(line).substr(kLost.size()), kHighestRank);
      if (ranks) lose(*ranks, gone);
    } else {
      peer.socket = Socket();  // not of this job
    }
  }

  void identify(Peer& peer, const std::string& line) {
    const auto rank = line.starts_with(' ')
                          ? parse_integer(std::string_view(line).substr(1), 1, kHighestRank)
                          : std::nullopt;
    // A second connection of a rank is not the rank's.
    if (!rank || absent_.erase(static_cast<int>(*rank)) == 0) {
      peer.socket = Socket();
      return;
    }
    peer.rank = static_cast<int>(*rank);
    peer.last_received = Clock::now();
    send_beat(peer);
    if (options_.on_abort && first_abort_) send_line(peer, std::string(kAborted) + "\n");
    are_all_here_ = absent_.empty();
    const std::scoped_lock lock(mutex_);
    if (!lost_.empty())
      // The others got it before this one connected.
      send_text(peer.socket, loss_line(lost_, hung_up_));
  }

  static std::string loss_line(const std::vector<int>& ranks, bool gone) {
    return std::string(gone ? kGone : kLost) + cpu_list_text(ranks) + "\n";
  }

  void find_timeouts() {
    std::vector<int> timed_out;
    const auto deadline = Clock::now() - limit();
    for (Peer& peer : peers_) {
      if (peer.last_received > deadline) continue;
      if (peer.rank >= 0) {
        if (is_watching_) timed_out.push_back(peer.rank);
      } else {
        peer.socket = Socket();  // connected, and did not send its token in this time
      }
    }
    send_loss(timed_out, false);
  }

  void find_hang_ups() {
    std::vector<int> gone;
    for (const Peer& peer : peers_) {
      if (!peer.socket.open() && peer.rank >= 0 && !peer.left) gone.push_back(peer.rank);
    }
    if (gone.empty()) return;
    {
      const std::scoped_lock lock(mutex_);
      for (const int rank : gone) {
        if (std::ranges::count(aborted_ranks_, rank) == 0) closed_.push_back(rank);
      }
    }
    if (gone_.empty()) first_gone_ = Clock::now();
    gone_.insert(gone_.end(), gone.begin(), gone.end());
    if (!options_.waiting) find_hang();
  }

  void take_abort(const Peer& from) {
    // Once: all others abort then, each with a line of its own.
    if (options_.on_abort && !first_abort_) {
      for (Peer& peer : peers_) {
        if (&peer != &from && peer.rank > 0 && peer.socket.open())
          send_line(peer, std::string(kAborted) + "\n");
      }
    }
    note_abort();
    const std::scoped_lock lock(mutex_);
    aborted_ranks_.push_back(from.rank);
  }

  void note_abort() {
    if (!first_abort_) first_abort_ = Clock::now();
  }

  // Gloo wakes only the ranks that wait for the one that aborts, and not those that wait for one
  // that is late.
  void end_what_waits_after_abort() {
    if (!options_.on_abort || !first_abort_ || Clock::now() - *first_abort_ < kAfterAbort) return;
    if (options_.waiting() >= kAfterAbort) options_.on_abort();
  }

  // gloo 2.11 may wait for a send on a connection that it has closed itself; and a rank may wait
  // for one that has not noticed.
  void find_hang() {
    if (!is_watching_ || gone_.empty()) return;
    const milliseconds hang = std::min(limit(), kHang);
    if (options_.waiting && (Clock::now() - first_gone_ < hang || options_.waiting() < hang))
      return;
    send_loss(std::exchange(gone_, {}), true);
  }

  void send_loss(std::vector<int> ranks, bool gone) {
    if (ranks.empty()) return;
    std::sort(ranks.begin(), ranks.end());
    for (Peer& peer : peers_) {
      if (peer.socket.open()) send_line(peer, loss_line(ranks, gone));
    }
    lose(ranks, gone);
  }

  void lose(const std::vector<int>& ranks, bool gone) {
    {
      const std::scoped_lock lock(mutex_);
      if (!lost_.empty()) return;
      lost_ = ranks;
      hung_up_ = gone;
    }
    options_.on_loss();
  }

  HeartbeatOptions options_;
  Socket listener_;
  Endpoint endpoint_;
  std::vector<Peer> peers_;
  std::set<int> absent_;       // ranks that have not joined
  const std::size_t others_;   // ranks than this one that join here
  bool is_watching_;           // ranks that send nothing are lost
  bool are_all_here_ = false;  // the last of the absent ranks has joined
  bool can_accept_ = true;
  std::atomic<bool> is_accepted_ = false;  // on another rank than 0: rank 0 has sent something
  Socket wake_;
  std::atomic<bool> is_ending_ = false;
  std::mutex stop_mutex_;
  mutable std::mutex mutex_;
  std::vector<int> lost_;
  bool hung_up_ = false;
  std::vector<int> aborted_ranks_, closed_;
  std::string to_report_;                         // as it is sent
  std::map<int, Report> reports_;                 // the newest of each rank
  std::vector<int> gone_;                         // closed without leave(), and not yet lost
  Clock::time_point first_gone_;                  // the first of them
  std::optional<Clock::time_point> first_abort_;  // that another rank has announced
  std::string_view last_line_;                    // empty: ends without one
  std::thread thread_;                            // the last member: it uses all others
};

Result<std::unique_ptr<Heartbeat>> Heartbeat::serve(const std::string& address, int world_size,
                                                    HeartbeatOptions options) {
  if (options.token.empty()) return Error{"the kernel gives no random bits"};
  auto listener = listen_on({address, 0});
  if (!listener) return listener.error();
  const auto port = bound_port(*listener);
  if (!port) return port.error();
  fcntl(listener->descriptor(), F_SETFL, O_NONBLOCK);
  std::set<int> absent;
  for (int rank = 1; rank < world_size; ++rank) absent.insert(rank);
  auto thread =
      std::make_unique<Thread>(std::move(*listener), Endpoint{address, *port},
                               std::vector<Thread::Peer>(), std::move(absent), std::move(options));
  return std::unique_ptr<Heartbeat>(new Heartbeat(std::move(thread)));
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::join(const Endpoint& server, int rank,
                                                   HeartbeatOptions options) {
  auto socket = connect_to(server, limit_of(options));
  if (!socket) return socket.error();
  disable_nagle(*socket);
  std::vector<Thread::Peer> peers;
  peers.push_back({.socket = std::move(*socket), .rank = 0});
  if (!send_text(peers[0].socket, options.token + " " + std::to_string(rank) + "\n"))
    return Error{"rank 0 closed the connection"};
  auto thread = std::make_unique<Thread>(Socket(), server, std::move(peers), std::set<int>(),
                                         std::move(options));
  return std::unique_ptr<Heartbeat>(new Heartbeat(std::move(thread)));
}

Heartbeat::Heartbeat(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}
Heartbeat::~Heartbeat() = default;

const Endpoint& Heartbeat::endpoint() const { return thread_->endpoint(); }
milliseconds Heartbeat::limit() const { return thread_->limit(); }
std::vector<int> Heartbeat::lost() const { return thread_->lost(); }
bool Heartbeat::hung_up() const { return thread_->hung_up(); }
bool Heartbeat::wait_until_accepted() const { return thread_->wait_until_accepted(); }
void Heartbeat::leave() { thread_->end_with(kLeft); }
void Heartbeat::announce_abort() { thread_->end_with(kBroke); }
void Heartbeat::stop() { thread_->stop(); }
std::vector<int> Heartbeat::aborted_ranks() const { return thread_->aborted_ranks(); }
std::vector<int> Heartbeat::closed() const { return thread_->closed(); }
void Heartbeat::report(const std::string& name, const std::string& text) {
  thread_->report(name, text);
}
std::optional<std::map<int, std::string>> Heartbeat::take_reports(const std::string& name) {
  return thread_->take_reports(name);
}
std::vector<int> Heartbeat::closed_without_report(const std::string& name) const {
  return thread_->closed_without_report(name);
}

}  // namespace torchbridge::train
