// A rank that is stopped, swapped out or whose node hangs keeps its connections: gloo waits for it until the
// collective's timeout. So the ranks say every now and then that they live.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge/core/endpoint.h"
#include "bridge/base/result.h"

namespace torchbridge::train {

struct HeartbeatOptions {
  std::chrono::milliseconds timeout{4000};  // who sends nothing for so long is lost
  std::string token;                        // of this job, no newline; who does not know it is not listened to
  bool hang_ups = false;                    // who hangs up without having left is lost too; the same on all ranks
  // Called once, by the thread of the heartbeat, when ranks are lost.
  std::function<void()> on_loss;
};

// Rank 0 listens, the others connect; one thread in each process. A process that was stopped itself, as all ranks are
// when a job is suspended, counts anew when it goes on. Ranks that end are lost only with `hang_ups`: gloo's
// connections tell it by themselves, and those of other backends do not.
class Heartbeat {
 public:
  // On rank 0, at a free port of a numeric address of this host.
  static Result<std::unique_ptr<Heartbeat>> serve(const std::string& address, HeartbeatOptions options);
  static Result<std::unique_ptr<Heartbeat>> join(const Endpoint& server, int rank, HeartbeatOptions options);
  // Ends the thread at once, without a word.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Where rank 0 listens.
  const Endpoint& endpoint() const;
  // Empty as long as all is well. Any thread may ask.
  std::vector<int> lost() const;
  // Whether those that are lost hung up; else they say nothing.
  bool hung_up() const;
  // The others will find this rank gone, and that is in order.
  void leave();
  // Takes in all that the others have said by now, and says that this rank ends because the group broke. Others that
  // were given up meanwhile hear both when they go on.
  void announce_abort();
  // Those that have said so.
  std::vector<int> aborted_ranks() const;

 private:
  class Thread;
  explicit Heartbeat(std::unique_ptr<Thread> thread);
  std::unique_ptr<Thread> thread_;
};

}  // namespace torchbridge::train
