#include "trainer_template/runtime/backends/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <sstream>

#include <c10/util/Exception.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "bridge/net/address.h"
#include "bridge/net/random_token.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kLine = 64;  // of the cache: two ranks do not write to the same one

// A rank that waits spins for so long before it sleeps, because a wake-up takes longer than most
// waits. Where there are more ranks than free cores spinning is useless: each failure halves the
// time, and every kFullSpinPeriod-th wait tries the longest one again. It never yields: a thread
// that yields runs again after all others of its core, one that is woken runs before them.
constexpr nanoseconds kLongestSpin{200'000}, kShortestSpin{1'000};
constexpr std::uint32_t kFullSpinPeriod = 64;
constexpr int kChecksPerClock = 16;

// How often a sleeping rank checks that the others are alive.
constexpr milliseconds kAliveCheckInterval{50};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

Error failed(const std::string& call) { return Error{call + ": " + std::strerror(errno)}; }

[[noreturn]] void lost(const std::string& why) {
  C10_THROW_ERROR(DistBackendError, formatted("gloo over shared memory: {}", why));
}

// For F_OFD_SETLK: the open file description holds the lock, not the process.
struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

struct SharedRegion::Header {
  char token[kTokenSize];
  alignas(kLine) std::atomic<std::uint64_t> arrived;  // counts each arrival of a rank at a round
  // The last complete one: the futex that all wait for.
  alignas(kLine) std::atomic<std::uint32_t> round;
  std::atomic<std::uint32_t> end;
  alignas(kLine) std::atomic<std::uint32_t> sleepers;
};

struct alignas(kLine) SharedRegion::RankState {
  std::atomic<std::uint32_t> round;
  std::uint64_t operations[2];  // the current one of each slot
};

SharedRegion::SharedRegion(const Shape& shape, Socket file, char* memory, std::string ticket)
    : shape_(shape),
      file_(std::move(file)),
      memory_(memory),
      header_(reinterpret_cast<Header*>(memory)),
      ticket_(std::move(ticket)),
      spin_time_(kLongestSpin) {}

std::size_t SharedRegion::bytes_before_slots(const Shape& shape) {
  return sizeof(Header) + sizeof(RankState) * static_cast<std::size_t>(shape.size);
}

std::size_t SharedRegion::bytes_of(const Shape& shape) {
  return bytes_before_slots(shape) + 2 * shape.slot_bytes * static_cast<std::size_t>(shape.size);
}

SharedRegion::RankState& SharedRegion::state(int rank) const {
  return reinterpret_cast<RankState*>(memory_ + sizeof(Header))[rank];
}

char* SharedRegion::slot(int rank) const {
  const std::size_t index = static_cast<std::size_t>(rank) * 2 + operation_ % 2;
  return memory_ + bytes_before_slots(shape_) + index * shape_.slot_bytes;
}

// Each rank opens the file anew, for a lock of its own. For a process that is not visible here the
// path does not exist.
Result<std::shared_ptr<SharedRegion>> SharedRegion::map(const Shape& shape, const std::string& path,
                                                        std::string ticket) {
  Socket file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.open()) return failed(path);
  const std::size_t bytes = bytes_of(shape);
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) return failed(path);
  if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) != bytes)
    return Error{formatted("{}: this is another file", path)};
  // Another user could make it shorter, which ends the ranks by SIGBUS, or write to it.
  if (status.st_uid != geteuid()) return Error{formatted("{}: it belongs to another user", path)};
  struct flock lock = lock_of(shape.rank);
  if (fcntl(file.descriptor(), F_OFD_SETLK, &lock) != 0) return failed(path);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED) return failed("mmap");
  return std::shared_ptr<SharedRegion>(
      new SharedRegion(shape, std::move(file), static_cast<char*>(memory), std::move(ticket)));
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::create(const Shape& shape) {
  const std::string token = random_token();
  if (token.size() != kTokenSize) return Error{"the kernel gives no random bits"};
  const Socket file(memfd_create("torchbridge", MFD_CLOEXEC));
  if (!file.open() || ftruncate(file.descriptor(), static_cast<off_t>(bytes_of(shape))) != 0)
    return failed("memfd_create");
  auto made = map(shape, "/proc/self/fd/" + std::to_string(file.descriptor()), "");
  if (!made) return made;
  SharedRegion& region = **made;
  std::memcpy(region.header_->token, token.data(), kTokenSize);
  region.ticket_ = host_name() + " " + std::to_string(getpid()) + " " +
                   std::to_string(region.file_.descriptor()) + " " + token;
  return made;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::join(const Shape& shape,
                                                         const std::string& ticket) {
  std::istringstream words(ticket);
  std::string host, process, descriptor, token;
  words >> host >> process >> descriptor >> token;
  if (host != host_name()) return Error{formatted("rank 0 is on {}", printable(host))};
  // The ticket comes from the store, where anyone can have written it.
  if (!parse_integer(process, 1, INT32_MAX) || !parse_integer(descriptor, 0, INT32_MAX))
    return Error{formatted("the ticket of rank 0 is '{}'", printable(ticket))};
  auto joined = map(shape, "/proc/" + process + "/fd/" + descriptor, ticket);
  if (joined && std::string_view((*joined)->header_->token, kTokenSize) != token)
    return Error{formatted("process {} of this host is not rank 0", process)};
  return joined;
}

SharedRegion::~SharedRegion() { munmap(memory_, bytes_of(shape_)); }

void SharedRegion::begin(std::uint64_t operation) {
  ++operation_;
  state(shape_.rank).operations[operation_ % 2] = operation;
}

bool SharedRegion::is_complete() const {
  return static_cast<std::int32_t>(header_->round.load(std::memory_order_acquire) - round_) >= 0;
}

void SharedRegion::wait_for_all(milliseconds timeout) {
  ++round_;
  check_end();  // first: the others may have arrived and then failed, and the round would look
                // complete
  state(shape_.rank).round.store(round_, std::memory_order_release);
  const std::uint64_t arrived = header_->arrived.fetch_add(1) + 1;
  if (arrived % static_cast<std::uint64_t>(shape_.size) == 0) {
    header_->round.store(round_);
    if (header_->sleepers.load() > 0) futex(header_->round, FUTEX_WAKE, INT_MAX, nullptr);
  } else if (!spin()) {
    sleep(timeout);
  }
  check_same();
}

bool SharedRegion::spin() {
  const bool is_full = round_ % kFullSpinPeriod == 0;
  const nanoseconds limit = is_full ? kLongestSpin : spin_time_;
  const auto begin = Clock::now();
  do {
    for (int check = 0; check < kChecksPerClock; ++check) {
      if (is_complete()) {
        spin_time_ = std::min(2 * limit, kLongestSpin);
        return true;
      }
      relax();
    }
  } while (Clock::now() - begin < limit);
  if (!is_full) spin_time_ = std::max(spin_time_ / 2, kShortestSpin);
  return is_complete();
}

void SharedRegion::sleep(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  header_->sleepers.fetch_add(1);
  while (true) {
    const std::uint32_t seen = header_->round.load();
    if (is_complete()) break;
    check_end();
    if (Clock::now() >= deadline) {
      end(kTimedOut);
      lost(formatted("timed out after {} ms", timeout.count()));
    }
    const timespec nap{0, std::chrono::duration_cast<nanoseconds>(kAliveCheckInterval).count()};
    if (futex(header_->round, FUTEX_WAIT, seen, &nap) != 0 && errno == ETIMEDOUT) check_alive();
  }
  header_->sleepers.fetch_sub(1);
}

void SharedRegion::end(End why) {
  std::uint32_t none = kNone;
  header_->end.compare_exchange_strong(none, why);
  futex(header_->round, FUTEX_WAKE, INT_MAX, nullptr);
}

// The others fail for the reason for which the first one ended the region.
void SharedRegion::check_end() const {
  const std::uint32_t why = header_->end.load();
  if (why == kNone || is_complete()) return;
  lost(why == kTimedOut ? "another rank timed out" : "another rank aborted the group");
}

// A rank that has arrived at this round is not lost, even if its process has ended since.
void SharedRegion::check_alive() const {
  for (int rank = 0; rank < shape_.size; ++rank) {
    struct flock lock = lock_of(rank);
    if (rank == shape_.rank || fcntl(file_.descriptor(), F_OFD_GETLK, &lock) != 0 ||
        lock.l_type != F_UNLCK)
      continue;
    if (state(rank).round.load(std::memory_order_acquire) != round_ && !is_complete())
      lost(formatted("the connection to rank {} is lost: its process has ended", rank));
  }
}

void SharedRegion::check_same() const {
  const auto of = [&](int rank) { return state(rank).operations[operation_ % 2]; };
  for (int rank = 1; rank < shape_.size; ++rank) {
    if (of(rank) == of(0)) continue;
    throw TrainError(
        formatted("ranks 0 and {} of a group are in different collectives, or have tensors of "
                  "different sizes or types",
                  rank));
  }
}

}  // namespace torchbridge::train
