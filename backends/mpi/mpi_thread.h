// The one thread of this process that calls MPI for the backend: it initialises and finalises the
// library, posts operations, and waits for them.
//
// One thread, so that a library below MPI_THREAD_MULTIPLE can be used; nonblocking operations, so
// that a late rank does not delay other groups, and every wait can time out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

namespace torchbridge::mpi {

// A call of MPI did not return MPI_SUCCESS.
class MpiError : public std::runtime_error {
 public:
  MpiError(const std::string& call, int code);
};

// An operation or call did not end within its timeout.
class TimeoutError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void check(const char* call, int code);

// A communicator of the backend, made by MpiThread::own. MPI's thread frees it after the last owner
// has released it, or when MPI is finalised before.
struct Communicator {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0, size = 1;
  int largest_tag = 32767;  // MPI's guaranteed minimum; reserved for the backend's own messages
  std::int64_t largest_count = 1;  // see MpiOptions
  // The first error after which it cannot be used; empty: none. Only MPI's thread uses it.
  std::string failure;

  Communicator() = default;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
};

// Collects the requests of one operation: requests(MPI_Ibcast, "MPI_Ibcast", buffer, ...,
// communicator).
class Requests {
 public:
  template <class Call, class... Arguments>
  void operator()(const char* name, Call call, Arguments... arguments) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(name, call(arguments..., &request));
    pending_.push_back(request);
  }
  std::vector<MPI_Request>& pending() { return pending_; }

 private:
  std::vector<MPI_Request> pending_;
};

// All functions are called on MPI's thread.
struct Operation {
  std::shared_ptr<Communicator> communicator;
  std::string what;  // for messages: "all_reduce 7"
  std::chrono::steady_clock::time_point deadline;
  std::chrono::milliseconds timeout{0};  // of which the deadline was made, for the message
  // After an error of MPI the communicator cannot be used, because its state is unknown.
  bool collective = true;
  std::function<void(Requests&)> post;
  // Once. The statuses are those of the requests in their order; empty where there is an error.
  // After a timeout MPI may still read and write the buffers: they must live as long as the
  // functions of this operation.
  std::function<void(std::exception_ptr, const std::vector<MPI_Status>&)> done;
};

class MpiThread {
 public:
  // MPI is initialised at the first call, unless the program has done so, and finalised when the
  // program ends with exit code 0, if it was initialised here. Throws where MPI is finalised
  // already or was initialised for one thread only.
  static MpiThread& instance();

  void submit(Operation operation);
  // Destroys on this thread what ended operations hold.
  void release_ended();

  // Runs `call` on MPI's thread and waits for it. Throws what it throws, or TimeoutError("WHAT
  // ..."), after which the thread is not used any more: it may hang in MPI, and MPI will not be
  // finalised.
  void run(const std::string& what, std::chrono::milliseconds timeout, std::function<void()> call);

  // All operations on it fail, those in progress and later ones.
  void abort(const std::shared_ptr<Communicator>& communicator, const std::string& reason);

  // On MPI's thread: takes ownership of `made`, which returns errors from here on.
  std::shared_ptr<Communicator> own(MPI_Comm made);
  // On MPI's thread: `release` is called while MPI is finalised, on the thread that does that, and
  // may still call MPI. In reverse order.
  void at_finalize(std::function<void()> release) { releases_.push_back(std::move(release)); }

  // Of the library, as MPI_Init_thread or MPI_Query_thread gave it.
  int thread_level() const { return thread_level_; }
  // Collective over all ranks. A copy of MPI_COMM_WORLD that returns errors.
  std::shared_ptr<Communicator> world(std::chrono::milliseconds timeout);

 private:
  struct Active;
  MpiThread();
  void start();
  void loop();
  bool advance();
  void post(Operation operation);
  void enqueue(std::function<void()> call);
  void keep_ended(std::unique_ptr<Active> ended);
  void leave(int exit_status);
  void call_when_finalized();
  static int release_all(MPI_Comm, int, void*, void*);
  friend struct Communicator;

  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::function<void()>> calls_;
  std::vector<std::unique_ptr<Active>> active_;  // of MPI's thread
  // Ended operations. The next thread that submits one or ends a group destroys them, never MPI's
  // thread: to destroy a tensor of Python needs the interpreter, which may have begun to end when
  // the operation was reported.
  std::vector<std::unique_ptr<Active>> ended_;
  std::shared_ptr<Communicator> world_;
  std::vector<std::function<void()>> releases_;
  std::vector<std::weak_ptr<Communicator>> communicators_;  // in the order in which they were made
  bool busy_ = false;                                       // operations are in progress
  bool lost_ = false;   // and all of them have failed or timed out
  bool stuck_ = false;  // a call of MPI does not return
  bool ending_ = false, finalize_ = false, gone_ = false;
  bool initialized_here_ = false;
  int thread_level_ = MPI_THREAD_SINGLE;
};

// Whether the MPI library reports that it accepts pointers to CUDA memory.
bool takes_cuda_memory();

}  // namespace torchbridge::mpi
