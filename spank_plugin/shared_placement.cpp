#include "shared_placement.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace torchbridge {

struct SharedPlacement::Shared {
  pthread_mutex_t mutex;
  bool asked;
  char error[1024];    // empty where there is an answer
  std::size_t count;   // of the numbers: 0 or all
  int node_of_rank[];
};

namespace {

// Held by one of several processes; the next one gets it where its holder has died.
class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace

SharedPlacement::SharedPlacement(std::size_t ranks) : memory_(sizeof(Shared) + ranks * sizeof(int)), ranks_(ranks) {
  if (shared() == nullptr) return;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared()->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

Result<NodeOfRank> SharedPlacement::ask_once(const std::function<Result<NodeOfRank>()>& ask) const {
  if (shared() == nullptr) return ask();
  Shared& answer = *shared();
  const Lock lock(answer.mutex);
  if (!answer.asked) {
    const auto found = ask();
    if (found) {
      answer.count = std::min(found->size(), ranks_);
      std::copy_n(found->begin(), answer.count, answer.node_of_rank);
    } else {
      std::strncpy(answer.error, found.error().message.c_str(), sizeof answer.error - 1);
    }
    answer.asked = true;
  }
  if (answer.error[0] != '\0') return Error{answer.error};
  return NodeOfRank(answer.node_of_rank, answer.node_of_rank + answer.count);
}

}  // namespace torchbridge
