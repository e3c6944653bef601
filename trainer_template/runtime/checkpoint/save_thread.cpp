#include "trainer_template/runtime/checkpoint/save_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <system_error>

#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPoll{1}, kLastPoll{50};
constexpr std::string_view kFailed = "failed ";  // an error, instead of records

// The save was cancelled: its owner no longer waits for it.
struct SaveCancelled : std::exception {};

// Lowers the priority of this thread and of the threads that it starts later, so that the scheduler
// prefers the training threads.
void lower_priority() {
  constexpr int kNiceness = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);  // an error is ignored
}

}  // namespace

// With the number of the others; empty if none failed.
std::string SaveThread::first_failure(const std::vector<ShardReport>& reports) {
  std::string first;
  int others = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank]) continue;
    if (!first.empty()) ++others;
    if (first.empty()) first = formatted("rank {}: {}", rank, reports[rank].error().message);
  }
  return others == 0 ? first : formatted("{} (and on {} more ranks)", first, others);
}

SaveThread::SaveThread(SaveRequest request) try
    : request_(std::move(request)), thread_([this](const std::stop_token& stop) { run(stop); }) {
} catch (const std::system_error& error) {
  throw TrainError(formatted("cannot start a thread to write a checkpoint: {}", error.what()));
}

void SaveThread::run(const std::stop_token& stop) try {
  ShardReport own = write_own_shards(stop);
  if (request_.rank != 0) {
    std::string text = own ? to_text(*own) : std::string(kFailed) + own.error().message;
    if (text.size() > Heartbeat::kLongestReport)
      text = std::string(kFailed) + formatted("its report has {} bytes, more than {}", text.size(),
                                              Heartbeat::kLongestReport);
    request_.link->report(request_.name, text);  // before wait_written() returns
    return finish({});
  }
  {
    const std::scoped_lock lock(mutex_);
    written_ = true;
  }
  changed_.notify_all();
  complete(collect_reports(stop, std::move(own)));
} catch (const SaveCancelled&) {
  finish("the save was cancelled");
} catch (const std::exception& error) {
  finish(one_line(error));
}

SaveThread::ShardReport SaveThread::write_own_shards(const std::stop_token& stop) try {
  const WritePace pace{.bytes_per_s = request_.bytes_per_s,
                       .wait = [&](std::chrono::nanoseconds time) {
                         pause(stop, time, [this] { return rate_limit_lifted_; });
                       }};
  copy_();
  copied_.get();
  request_.snapshot.wait();
  if (request_.low_priority) lower_priority();
  return write_shards(request_.files, request_.temporary, request_.snapshot.shards(), pace);
} catch (const SaveCancelled&) {
  throw;
} catch (const std::exception& error) {
  return Error{error.what()};
}

Result<std::vector<SaveThread::ShardReport>> SaveThread::collect_reports(
    const std::stop_token& stop, ShardReport own) {
  std::vector<ShardReport> reports = {std::move(own)};
  if (!request_.link) return reports;
  std::optional<std::map<int, std::string>> texts;
  for (milliseconds poll = kFirstPoll;; poll = std::min(poll * 2, kLastPoll)) {
    const std::string missing = missing_report();  // before: one may come meanwhile
    texts = request_.link->take_reports(request_.name);
    if (texts) break;
    if (!missing.empty()) return Error{missing};
    pause(stop, poll);
  }
  for (const auto& [rank, text] : *texts) {
    reports.push_back(text.starts_with(kFailed)
                          ? ShardReport(Error{printable(text.substr(kFailed.size()))})
                          : records_from(text));
  }
  return reports;
}

std::string SaveThread::missing_report() {
  const std::scoped_lock lock(mutex_);
  if (!deadline_) return {};
  if (const auto closed = request_.link->closed_without_report(request_.name); !closed.empty())
    return formatted("the report of rank {} did not come: its connection to rank 0 is closed",
                     closed.front());
  if (Clock::now() < *deadline_) return {};
  return formatted("the reports of other ranks did not come within {}",
                   seconds_text(std::chrono::duration<double>(request_.report_timeout).count()));
}

void SaveThread::complete(const Result<std::vector<ShardReport>>& reports) {
  std::string failure = reports ? first_failure(*reports) : reports.error().message;
  try {
    if (failure.empty()) {
      Manifest manifest = request_.manifest;
      std::vector<ShardRecord> records;
      for (const ShardReport& report : *reports)
        std::ranges::copy(*report, std::back_inserter(records));
      manifest.files = joined(std::move(records));
      if (request_.resumed_from)
        rename_newer_to_aside(request_.files, request_.root, *request_.resumed_from);
      publish(request_.files, request_.root, request_.temporary, manifest);
    }
  } catch (const std::exception& error) {
    failure = formatted("rank 0: {}", error.what());
  }
  if (failure.empty()) {
    const std::string error =
        update_latest_and_prune(request_.files, request_.root, step(), request_.retention);
    if (!error.empty())
      print_message(formatted("the checkpoint of step {} is complete, but {}", step(), error));
    return finish({});
  }
  print_message(
      formatted("checkpoint of step {} is not saved: {}; older checkpoints stay, and the next save "
                "tries again",
                step(), failure));
  remove_unpublished(request_.files, request_.root, request_.temporary, step());
  finish(failure);
}

void SaveThread::lift_rate_limit() {
  {
    const std::scoped_lock lock(mutex_);
    rate_limit_lifted_ = true;
  }
  changed_.notify_all();
}

void SaveThread::pause(const std::stop_token& stop, std::chrono::nanoseconds time,
                       const std::function<bool()>& enough) {
  if (time.count() > 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, time, enough);
  }
  if (stop.stop_requested()) throw SaveCancelled();
}

void SaveThread::finish(std::string failure) {
  {
    const std::scoped_lock lock(mutex_);
    failure_ = std::move(failure);
    written_ = true;
    done_ = true;
  }
  changed_.notify_all();
}

bool SaveThread::written() {
  const std::scoped_lock lock(mutex_);
  return written_;
}

void SaveThread::wait_written() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return written_; });
}

void SaveThread::expect_reports() {
  const std::scoped_lock lock(mutex_);
  if (!deadline_) deadline_ = Clock::now() + request_.report_timeout;
}

std::string SaveThread::wait() {
  expect_reports();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.load(); });
  return failure_;
}

}  // namespace torchbridge::train
