#include "backends/mpi/mpi_thread.h"

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <optional>
#include <thread>

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace torchbridge::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// While operations are in progress the thread polls MPI and yields in between. When none has ended
// for kBusyPolling it sleeps in between, for 1/kNapDivisor of the time without a change: a rank
// that waits for a slow one must not take the CPU from threads that compute.
constexpr std::chrono::microseconds kBusyPolling{300};
constexpr int kNapDivisor = 8;
constexpr std::chrono::microseconds kLongestNap{1000};
constexpr int kPollsPerNap = 64;
constexpr std::chrono::seconds kFinishTimeout{
    10};  // for operations in progress when the program ends with exit code 0
constexpr std::chrono::seconds kLeaveTimeout{
    1};  // for the thread to stop calling MPI when the program fails

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<std::size_t>(length));
}

// OpenMPI's components are libraries that look for libmpi's symbols among the global ones. They are
// not global if a Python extension loaded libmpi.
void make_symbols_global() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname != nullptr) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

std::string seconds(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

MpiError::MpiError(const std::string& call, int code)
    : std::runtime_error(call + ": " + text_of(code)) {}

void check(const char* call, int code) {
  if (code != MPI_SUCCESS) throw MpiError(call, code);
}

Communicator::~Communicator() {
  if (handle == MPI_COMM_NULL || !failure.empty()) return;
  MpiThread::instance().enqueue([handle = handle]() mutable {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Comm_free(&handle);
  });
}

struct MpiThread::Active {
  Operation operation;
  Requests requests;
  std::vector<MPI_Status> statuses;
  std::size_t open = 0;  // requests that have not ended
  // No caller waits any more, but after a failure MPI may still use the buffers.
  bool reported = false;

  void posted() {
    open = requests.pending().size();
    statuses.resize(open);
  }

  void report(const std::exception_ptr& error) {
    if (reported) return;
    reported = true;
    operation.done(error, error ? std::vector<MPI_Status>() : statuses);
  }

  void report(const MpiError& error) {
    std::string& failure = operation.communicator->failure;
    if (operation.collective && failure.empty()) failure = error.what();
    report(std::make_exception_ptr(error));
  }

  // True where a request has ended.
  bool test() {
    if (open == 0) return false;
    auto& pending = requests.pending();
    std::vector<int> indices(pending.size());
    std::vector<MPI_Status> found(pending.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(pending.size()), pending.data(), &count,
                                  indices.data(), found.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
      open = 0;
      report(MpiError(operation.what, code));
      return true;
    }
    if (count == MPI_UNDEFINED) count = static_cast<int>(open);
    for (int i = 0; i < count; ++i) {
      const MPI_Status& status = found[static_cast<std::size_t>(i)];
      statuses[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])] = status;
      if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
        report(MpiError(operation.what, status.MPI_ERROR));
      }
    }
    open -= static_cast<std::size_t>(count);
    return count > 0;
  }
};

MpiThread& MpiThread::instance() {
  // Never destroyed: its thread ends with the process, after leave().
  static MpiThread* progress = new MpiThread;
  return *progress;
}

MpiThread::MpiThread() {
  auto started = std::make_shared<std::promise<void>>();
  std::thread([this, started] {
    try {
      start();
    } catch (...) {
      return started->set_exception(std::current_exception());  // which destroys this object
    }
    started->set_value();
    loop();
  }).detach();
  started->get_future().get();
  // glibc's on_exit passes the exit status. After a failure the other ranks may be in an operation,
  // and MPI_Finalize would wait for them; mpirun ends them when a process ends without
  // MPI_Finalize.
  const pid_t owner = getpid();
  on_exit(
      [](int status, void* process) {
        if (getpid() == static_cast<pid_t>(reinterpret_cast<std::intptr_t>(process)))
          instance().leave(status);
      },
      reinterpret_cast<void*>(static_cast<std::intptr_t>(owner)));
}

void MpiThread::start() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized)
    throw std::runtime_error("MPI has been finalised, and no process can initialise it again");
  if (!initialized) {
    make_symbols_global();
    check("MPI_Init_thread",
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level_));
    // MPICH uses these error handlers, and not the communicator's own, when one of several requests
    // fails.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    call_when_finalized();
    initialized_here_ = true;
    return;
  }
  check("MPI_Query_thread", MPI_Query_thread(&thread_level_));
  if (thread_level_ < MPI_THREAD_SERIALIZED) {
    throw std::runtime_error(
        "the program initialised MPI for one thread only: call MPI_Init_thread with "
        "MPI_THREAD_MULTIPLE, or leave it "
        "to the backend");
  }
  call_when_finalized();
}

// MPI_Finalize first deletes the attributes of MPI_COMM_SELF, which calls release_all.
void MpiThread::call_when_finalized() {
  int key = MPI_KEYVAL_INVALID;
  check("MPI_Comm_create_keyval",
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, release_all, &key, nullptr));
  check("MPI_Comm_set_attr", MPI_Comm_set_attr(MPI_COMM_SELF, key, this));
  check("MPI_Comm_free_keyval", MPI_Comm_free_keyval(&key));  // freed with the attribute
  at_finalize([this] {
    for (const auto& weak : communicators_) {
      const auto communicator = weak.lock();
      if (communicator && communicator->failure.empty()) MPI_Comm_free(&communicator->handle);
    }
  });
}

int MpiThread::release_all(MPI_Comm, int, void* process, void*) {
  auto& releases = static_cast<MpiThread*>(process)->releases_;
  std::for_each(releases.rbegin(), releases.rend(), [](const auto& release) { release(); });
  return MPI_SUCCESS;
}

std::shared_ptr<Communicator> MpiThread::own(MPI_Comm made) {
  auto communicator = std::make_shared<Communicator>();
  communicator->handle = made;
  check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN));
  MPI_Comm_rank(made, &communicator->rank);
  MPI_Comm_size(made, &communicator->size);
  void* value = nullptr;
  int found = 0;
  check("MPI_Comm_get_attr", MPI_Comm_get_attr(made, MPI_TAG_UB, &value, &found));
  if (found) communicator->largest_tag = *static_cast<int*>(value);
  std::erase_if(communicators_, [](const auto& weak) { return weak.expired(); });
  communicators_.push_back(communicator);
  return communicator;
}

void MpiThread::enqueue(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || stuck_) return;
    calls_.push_back(std::move(call));
  }
  changed_.notify_one();
}

void MpiThread::release_ended() {
  std::vector<std::unique_ptr<Active>> ended;  // ends after the lock
  const std::lock_guard lock(mutex_);
  ended.swap(ended_);
}

void MpiThread::keep_ended(std::unique_ptr<Active> ended) {
  const std::lock_guard lock(mutex_);
  ended_.push_back(std::move(ended));
}

void MpiThread::submit(Operation operation) {
  release_ended();
  // The target of a std::function must be copyable.
  auto shared = std::make_shared<Operation>(std::move(operation));
  {
    const std::lock_guard lock(mutex_);
    if (gone_) throw std::runtime_error("MPI has been finalised");
    if (stuck_) throw std::runtime_error("MPI has hung since an earlier call timed out");
    calls_.push_back([this, shared] { post(std::move(*shared)); });
  }
  changed_.notify_one();
}

void MpiThread::run(const std::string& what, std::chrono::milliseconds timeout,
                    std::function<void()> call) {
  auto task = std::make_shared<std::packaged_task<void()>>(std::move(call));
  auto result = task->get_future();
  {
    const std::lock_guard lock(mutex_);
    if (gone_) throw std::runtime_error("MPI has been finalised");
    if (stuck_) throw std::runtime_error("MPI has hung since an earlier call timed out");
    calls_.push_back([task] { (*task)(); });
  }
  changed_.notify_one();
  if (result.wait_for(timeout) == std::future_status::timeout) {
    const std::lock_guard lock(mutex_);
    stuck_ = true;
    throw TimeoutError(what + " timed out after " + seconds(timeout) + ": not all ranks joined");
  }
  result.get();
}

void MpiThread::abort(const std::shared_ptr<Communicator>& communicator,
                      const std::string& reason) {
  enqueue([this, communicator, reason] {
    if (communicator->failure.empty()) communicator->failure = reason;
    for (auto& active : active_) {
      if (active->operation.communicator == communicator) {
        active->report(
            std::make_exception_ptr(std::runtime_error(active->operation.what + ": " + reason)));
      }
    }
  });
}

std::shared_ptr<Communicator> MpiThread::world(std::chrono::milliseconds timeout) {
  auto found = std::make_shared<std::shared_ptr<Communicator>>();
  run("forming the group of all MPI ranks", timeout, [this, found] {
    if (!world_) {
      MPI_Comm copy = MPI_COMM_NULL;
      check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &copy));
      world_ = own(copy);
    }
    *found = world_;
  });
  return *found;
}

void MpiThread::post(Operation operation) {
  auto active = std::make_unique<Active>();
  active->operation = std::move(operation);
  const Operation& posted = active->operation;
  try {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized) throw std::runtime_error(posted.what + ": the program has finalised MPI");
    if (!posted.communicator->failure.empty()) {
      throw std::runtime_error(posted.what +
                               ": the group failed before: " + posted.communicator->failure);
    }
    posted.post(active->requests);
  } catch (...) {
    active->report(std::current_exception());
  }
  active->posted();
  // An operation that failed half-way stays in the list, because MPI has some of its buffers.
  if (!active->reported || !active->requests.pending().empty()) {
    active_.push_back(std::move(active));
  } else {
    keep_ended(std::move(active));
  }
}

// Polls MPI once for each operation; true where a request has ended.
bool MpiThread::advance() {
  bool ended = false;
  std::optional<Clock::time_point> now;
  for (std::size_t i = 0; i < active_.size();) {
    Active& active = *active_[i];
    ended |= active.test();
    if (active.open > 0) {
      if (!now) now = Clock::now();
      if (!active.reported && *now >= active.operation.deadline) {
        const std::string why =
            active.operation.what + " timed out after " + seconds(active.operation.timeout);
        if (active.operation.communicator->failure.empty())
          active.operation.communicator->failure = why;
        active.report(std::make_exception_ptr(
            TimeoutError(why + ": another rank did not take part, or is stuck")));
      }
      ++i;
      continue;
    }
    ended = true;
    std::unique_ptr<Active> finished = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    finished->report(nullptr);
    keep_ended(std::move(finished));
  }
  return ended;
}

void MpiThread::loop() {
  auto last_change = Clock::now();
  while (true) {
    std::deque<std::function<void()>> calls;
    {
      std::unique_lock lock(mutex_);
      const auto something = [&] { return !calls_.empty() || ending_; };
      lost_ = !active_.empty() &&
              std::ranges::all_of(active_, [](const auto& active) { return active->reported; });
      busy_ = !active_.empty();
      if ((!busy_ && calls_.empty()) || lost_) idle_.notify_all();
      if (!busy_) {
        changed_.wait(lock, something);
      } else if (const auto idle = Clock::now() - last_change; idle > kBusyPolling) {
        changed_.wait_for(lock, std::min<Clock::duration>(idle / kNapDivisor, kLongestNap),
                          something);
      }
      busy_ = true;
      if (!calls_.empty()) lost_ = false;  // else leave() would not wait for these calls
      calls.swap(calls_);
      if (ending_) break;
    }
    bool changed = !calls.empty();
    for (auto& call : calls) call();
    calls.clear();
    // Several polls for each nap: MPI moves one piece of a large message at a poll.
    for (int poll = 0; poll < kPollsPerNap && !active_.empty(); ++poll) {
      if (advance()) {
        changed = true;
        break;
      }
      sched_yield();
    }
    if (changed) last_change = Clock::now();
  }
  if (finalize_) MPI_Finalize();
  const std::lock_guard lock(mutex_);
  gone_ = true;
  idle_.notify_all();
}

void MpiThread::leave(int exit_status) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  std::unique_lock lock(mutex_);
  if (exit_status == 0 && !stuck_ && !finalized) {
    idle_.wait_for(lock, kFinishTimeout, [this] { return lost_ || (!busy_ && calls_.empty()); });
    finalize_ = initialized_here_ && !busy_ && calls_.empty();
  }
  ending_ = true;
  changed_.notify_one();
  const auto ended = [this] { return gone_; };
  if (finalize_) {
    idle_.wait(lock, ended);
  } else if (!stuck_) {
    idle_.wait_for(lock, kLeaveTimeout, ended);
  }
  gone_ = true;
}

bool takes_cuda_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() != 0;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int supported = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#else
  return false;
#endif
}

}  // namespace torchbridge::mpi
