// The ranks of a job as one group: they meet at the store, talk over gloo, and part in order.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchbridge/exchange/launch.h>
#include <torchbridge/train/errors.h>

namespace c10d {
class ProcessGroup;
}

namespace torchbridge::train {

struct GroupOptions {
  InitMethod init_method;                                            // the way in; where it is file:// also the store
  std::chrono::milliseconds timeout = std::chrono::minutes(10);      // the longest wait in one collective
  std::chrono::milliseconds join_timeout = std::chrono::seconds(60); // until all ranks are there
  std::chrono::milliseconds silence = std::chrono::seconds(4);       // a rank that is stopped so long ends the job; 0: none does
};

// Every member function is a collective unless it says otherwise: all ranks call it, in the same order, from one thread.
// They throw when a rank is gone or does not come in time.
class ProcessGroup {
 public:
  // Waits until all ranks are there. Rank 0 serves the store, unless an agent does. With one rank nothing is opened that
  // others could reach. Throws TrainError, which names address, port and variable, or the ranks that are missing.
  ProcessGroup(Launch launch, const GroupOptions& options);
  // Closes all connections without a word to the others, who notice at once.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Not collective.
  int rank() const { return layout_.rank; }
  int world_size() const { return layout_.world_size; }
  bool is_first() const { return layout_.rank == 0; }
  const Layout& layout() const { return layout_; }
  const std::string& launcher() const { return launcher_; }

  void barrier();
  // In place.
  void sum(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root = 0);
  std::int64_t minimum(std::int64_t value);
  // The root's text; the argument of the others is not used.
  std::string broadcast(const std::string& text, int root = 0);
  // One a rank, in their order.
  std::vector<std::string> all_gather(const std::string& text);

  // The orderly end: waits for all, at most the given time, then closes.
  void leave();

  // Not collective: for what builds on c10d itself.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

  // Not collective; called once, after `error` has left everything that uses the group. Ends the connections, so that all
  // other ranks notice, and returns what this rank must print, or nothing where another rank speaks. At most about a second.
  std::optional<std::string> message_for(const std::exception& error);

 private:
  struct Connections;
  void join(Launch& launch, const GroupOptions& options);
  void start_heartbeat(const std::string& own_address, const GroupOptions& options);
  std::string silent_ranks(const std::vector<int>& lost);

  Layout layout_;
  std::string launcher_;
  std::unique_ptr<Connections> connections_;
};

// What the error says, as one line without the stack that c10 adds.
std::string one_line(const std::exception& error);

// Runs `work`, which must not be collective, on every rank. When it throws on any, every rank throws: the lowest of them
// its own error, all others PeerFailed. So a folder that one node cannot write to ends the job with one line.
template <class Work>
void all_or_none(ProcessGroup& group, Work&& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  const int first_failed = static_cast<int>(group.minimum(error ? group.rank() : group.world_size()));
  if (first_failed == group.world_size()) return;
  if (first_failed == group.rank()) std::rethrow_exception(error);
  throw PeerFailed();
}

}  // namespace torchbridge::train
