// Heartbeats between the ranks, and reports of the ranks to rank 0. A rank that is stopped or
// swapped out, or whose node hangs, keeps its connections, and gloo would wait for it until the
// collective's timeout.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"

namespace torchbridge::train {

struct HeartbeatOptions {
  // A rank that sends nothing for so long is lost. Zero: none is lost before `is_stopping`, and the
  // connections carry reports alone.
  std::chrono::milliseconds timeout{4000};
  // Random, of this job, no newline. A connection that does not begin with it within `timeout`, or
  // within `stop_timeout` where that is zero, is closed, and of many without it the oldest.
  std::string token;
  // How long this rank has waited in a collective, zero where it does not; called on the
  // heartbeat's thread. A rank that closes its connection without leave() is lost once this rank
  // has waited for a second since, or for `timeout`, if that is shorter. Empty: at once. The same
  // on all ranks.
  std::function<std::chrono::milliseconds()> waiting;
  // Called on the heartbeat's thread once another rank has announced an abort and this one has
  // waited in a collective for a tenth of a second since, by `waiting`; then again. Empty: never.
  std::function<void()> on_abort;
  // Whether the run has been asked to stop; called on the heartbeat's thread where `timeout` is
  // zero. From then on a rank that sends nothing for `stop_timeout` is lost. Empty: never.
  std::function<bool()> is_stopping;
  std::chrono::milliseconds stop_timeout{5000};
  // Called once, on the heartbeat's thread, when ranks are lost.
  std::function<void()> on_loss;
};

// Rank 0 listens, the others connect; one thread in each process. A process that was stopped
// itself, as all ranks are when a job is suspended, starts its timeouts anew when it continues. Of
// ranks that end, gloo's connections show most by themselves, those of other backends none.
class Heartbeat {
 public:
  static constexpr std::size_t kLongestReport = std::size_t{16} << 20;  // bytes

  // On rank 0, at a free port of a numeric address of this host. It waits for no rank: a rank
  // counts from its connection on. When all have connected, it no longer listens. An error where
  // the token is empty.
  static Result<std::unique_ptr<Heartbeat>> serve(const std::string& address, int world_size,
                                                  HeartbeatOptions options);
  static Result<std::unique_ptr<Heartbeat>> join(const Endpoint& server, int rank,
                                                 HeartbeatOptions options);
  // As stop().
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Where rank 0 listens.
  const Endpoint& endpoint() const;
  // For how long a lost rank has sent nothing.
  std::chrono::milliseconds limit() const;
  // Empty as long as no rank is lost. Any thread may call.
  std::vector<int> lost() const;
  // Whether the lost ranks closed their connections; else they sent no heartbeat.
  bool hung_up() const;
  // The ranks, on ranks other than 0 rank 0, whose connections closed without a last line: their
  // processes were killed or crashed.
  std::vector<int> closed() const;
  // Of another rank than 0: waits until rank 0 has taken the connection for this rank's. False
  // where it has not within 30 s, or has closed it, as where another connection claims the rank.
  bool wait_until_accepted() const;
  // The three below: any other thread than the heartbeat's own, also several at once.
  // Announces to the other ranks that this one ends in order, so that they do not count it as lost;
  // ends the thread.
  void leave();
  // Reads all that the others have sent by now, then sends them that this rank ends because the
  // group broke; ends the thread. A rank that was stopped meanwhile reads it when it continues.
  void announce_abort();
  // Ends the thread at once, where it has not ended, and sends nothing. Like the other two it
  // closes the connections; what was found until then can still be read.
  void stop();
  // Of another rank than 0: sends rank 0 a text of at most kLongestReport under a name, which has
  // no newline; it replaces the one before. Does not wait, nor do leave() and announce_abort(). Any
  // thread.
  void report(const std::string& name, const std::string& text);
  // On rank 0: by rank, the texts of all other ranks under this name, once the last has come; then
  // they are forgotten. Any thread.
  std::optional<std::map<int, std::string>> take_reports(const std::string& name);
  // On rank 0: the ranks that closed() has and that have sent no text under this name. Any thread.
  std::vector<int> closed_without_report(const std::string& name) const;

  // The ranks that have announced an abort.
  std::vector<int> aborted_ranks() const;

 private:
  class Thread;
  explicit Heartbeat(std::unique_ptr<Thread> thread);
  std::unique_ptr<Thread> thread_;
};

}  // namespace torchbridge::train
