// The connections of a group and of its subgroups: when the latest collective on them began,
// whether one is in progress, whether a backend has failed, and how to abort them all.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace torchbridge::train {

// How long an abort may take, and the orderly end of connections to which all ranks have come.
inline constexpr std::chrono::milliseconds kAbortTimeout{5000}, kEndTimeout{30'000};
// How late a rank may come to the end of a group.
inline constexpr std::chrono::milliseconds kLeaveTimeout{10'000};

// The error of an aborted collective, which does not name the cause.
inline constexpr const char* kAbortedCollective =
    "a collective was aborted, because another rank was lost or late";

// Any thread may call.
class Connections {
 public:
  struct BackendLink {
    std::function<void()> abort;
    std::function<c10d::ErrorType()> error;  // empty: the backend has none
  };
  using Handle = std::list<BackendLink>::iterator;

  // Of the whole group, which sets it before it forms any: reports the error of a process that can
  // do no more, and ends that.
  std::function<void(const std::exception&)> report_and_exit;

  // A connection that is added after abort() is aborted at once.
  Handle add(BackendLink link) {
    const std::scoped_lock lock(mutex_);
    if (is_aborted_) abort(link);
    return links_.insert(links_.end(), std::move(link));
  }
  void remove(Handle handle) {
    const std::scoped_lock lock(mutex_);
    links_.erase(handle);
  }
  // Before the orderly end of these, which NCCL must not abort then, nor is asked for an error.
  void begin_end(const std::vector<Handle>& links) {
    const std::scoped_lock lock(mutex_);
    for (const Handle& link : links) *link = {[] {}, {}};
  }
  // A group that the program has left, and how it ends, in how long.
  struct Kept {
    std::shared_ptr<void> group;
    std::function<void()> end;
    std::chrono::milliseconds limit{};
  };
  // Does not end it before end_kept(), but at once after keep_no_more(). Waits for no abort.
  void keep(int number, Kept group) {
    const std::scoped_lock lock(kept_mutex_);
    if (!keeps_no_more_) kept_[number] = std::move(group);
  }
  // Of the one with the highest number; nothing where none is kept.
  std::optional<std::chrono::milliseconds> kept_limit() {
    const std::scoped_lock lock(kept_mutex_);
    return kept_.empty() ? std::nullopt : std::optional(kept_.rbegin()->second.limit);
  }
  // Ends that one, which may hang; it removes its connections. All ranks end them in this order,
  // because NCCL's end of one waits for the other ranks of the node.
  void end_kept() {
    Kept kept;
    {
      const std::scoped_lock lock(kept_mutex_);
      if (kept_.empty()) return;
      kept = std::move(kept_.extract(std::prev(kept_.end())).mapped());
    }
    kept.end();
  }
  void abort(const std::vector<Handle>& links) {
    const std::scoped_lock lock(mutex_);
    for (const Handle& link : links) abort(*link);
  }
  // Ends those that are left. For the end of the whole group.
  void keep_no_more() {
    std::map<int, Kept> groups;
    const std::scoped_lock lock(kept_mutex_);
    groups.swap(kept_);
    keeps_no_more_ = true;
  }
  // From here on reads and writes fail, also those that other threads wait in.
  void abort() {
    const std::scoped_lock lock(mutex_);
    if (is_aborted_) return;
    aborted_at_ = Clock::now();
    is_aborted_ = true;
    for (BackendLink& link : links_) abort(link);
  }
  // Of the backends, until abort(), for which this does not wait. Two threads may ask at once.
  c10d::ErrorType error() {
    const std::shared_lock lock(mutex_, std::try_to_lock);
    if (!lock || is_aborted_) return c10d::ErrorType::SUCCESS;
    for (const BackendLink& link : links_) {
      if (!link.error) continue;
      if (const c10d::ErrorType found = link.error(); found != c10d::ErrorType::SUCCESS)
        return found;
    }
    return c10d::ErrorType::SUCCESS;
  }

  // On which the backends with errors of their own listen. An abort, which may hang, holds the
  // other mutex.
  std::set<std::string> interfaces() {
    const std::scoped_lock lock(interfaces_mutex_);
    return interfaces_;
  }
  void add_interfaces(std::set<std::string> names) {
    const std::scoped_lock lock(interfaces_mutex_);
    interfaces_.merge(std::move(names));
  }

  // After an abort, or an error that is a reason for one.
  bool are_broken() { return is_aborted_ || error() != c10d::ErrorType::SUCCESS; }
  // For who has read the result of a collective on the host: after an abort NCCL returns without an
  // error, and what it returns is wrong. Throws then.
  void throw_if_aborted() {
    if (!are_broken()) return;
    C10_THROW_ERROR(DistBackendError, kAbortedCollective);
  }

  // Called at the start of each collective, and where its end is known, then. `is_of_all`: of the
  // whole group. What begins after an abort does not count: a rank that waited in NCCL continues to
  // its next collective.
  void begin_collective(bool is_of_all) {
    ++in_progress_;
    if (is_aborted_) return;
    latest_ = Clock::now();
    is_latest_of_all_ = is_of_all;
    if (is_of_all) ++count_;
  }
  // A part of the one before, in which ranks waited for each other already.
  void continue_collective() { ++in_progress_; }
  void end_collective() { --in_progress_; }
  // The call that begins a collective, after begin_collective(). NCCL connects to its peers in the
  // first one of each algorithm, and for a group without a device forms its communicator there: the
  // call returns when the other ranks have come too.
  template <class Call>
  auto call_backend(const Call& call) {
    latest_call_ = Clock::now();
    ++calls_;
    const auto returned = c10::make_scope_exit([this] { --calls_; });
    return call();
  }
  // Since the latest such call began; zero where all have returned, and after an abort.
  std::chrono::milliseconds blocked() const {
    return calls_ > 0 && !is_aborted_ ? between(latest_call_, Clock::now())
                                      : std::chrono::milliseconds(0);
  }
  // Since the latest one began, until the abort.
  std::chrono::milliseconds waited() const {
    return between(latest_, is_aborted_ ? aborted_at_.load() : Clock::now());
  }
  // How many of the whole group have begun.
  int count() const { return count_; }
  bool is_latest_of_all() const { return is_latest_of_all_; }
  // Since the latest one began, or zero where all have ended. Also after an abort, which gloo may
  // wait through.
  std::chrono::milliseconds waiting() const {
    return in_progress_ > 0 ? between(latest_, Clock::now()) : std::chrono::milliseconds(0);
  }

 private:
  // Once. On a thread that may catch nothing; the backends after this one are aborted too.
  static void abort(BackendLink& link) {
    try {
      std::exchange(link.abort, [] {})();
    } catch (const std::exception&) {
      // The group is broken already, and the first error is the one to report.
    }
  }

  using Clock = std::chrono::steady_clock;
  static std::chrono::milliseconds between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - begin);
  }
  std::atomic<Clock::time_point> latest_{Clock::now()}, latest_call_{}, aborted_at_{};
  std::atomic<int> in_progress_{0}, count_{0}, calls_{0};
  std::atomic<bool> is_latest_of_all_{true}, is_aborted_{false};
  std::shared_mutex mutex_;
  std::mutex interfaces_mutex_, kept_mutex_;
  std::list<BackendLink> links_;
  std::set<std::string> interfaces_;
  std::map<int, Kept> kept_;
  bool keeps_no_more_ = false;
};

}  // namespace torchbridge::train
