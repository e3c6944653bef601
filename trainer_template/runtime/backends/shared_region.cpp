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

#include "bridge/base/env_map.h"
#include "bridge/net/address.h"
#include "bridge/net/random_token.h"
#include "trainer_template/runtime/base/errors.h"

namespace torchbridge::train {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kLine = 64;  // of the cache: what two ranks write is not on one

// A rank that waits looks for so long before it sleeps, for to be woken takes longer than most waits. Where the ranks
// are more than the cores, or others use these, that is in vain: the time is halved each time, and tried again every so
// many waits. It never yields: who does comes back after all others of its core, and who is woken before them.
constexpr nanoseconds kLongestLook{200'000}, kShortestLook{1'000};
constexpr std::uint32_t kTryAgain = 64;
constexpr int kLooks = 16;  // for one question of the time

// So often those that sleep look whether the others are alive.
constexpr milliseconds kLookAround{50};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

Error failed(const std::string& call) { return Error{call + ": " + std::strerror(errno)}; }

[[noreturn]] void lost(const std::string& why) { C10_THROW_ERROR(DistBackendError, "gloo over shared memory: " + why); }

// A lock of the descriptor's own description of the file, not of the process.
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
  alignas(kLine) std::atomic<std::uint64_t> arrived;  // so often a rank came to a round
  alignas(kLine) std::atomic<std::uint32_t> round;    // the last one that is complete: all wait for this word
  std::atomic<std::uint32_t> end;
  alignas(kLine) std::atomic<std::uint32_t> sleepers;
};

struct alignas(kLine) SharedRegion::RankState {
  std::atomic<std::uint32_t> round;
  std::uint64_t operations[2];  // what it is in, by slot
};

SharedRegion::SharedRegion(const Shape& shape, Socket file, char* memory, std::string ticket)
    : shape_(shape),
      file_(std::move(file)),
      memory_(memory),
      header_(reinterpret_cast<Header*>(memory)),
      ticket_(std::move(ticket)),
      patience_(kLongestLook) {}

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

// Opened anew by each rank, for the lock. A process that cannot be seen has no such path.
Result<std::shared_ptr<SharedRegion>> SharedRegion::map(const Shape& shape, const std::string& path,
                                                        std::string ticket) {
  Socket file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.open()) return failed(path);
  const std::size_t bytes = bytes_of(shape);
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) return failed(path);
  if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) != bytes)
    return Error{path + ": this is another file"};
  struct flock lock = lock_of(shape.rank);
  if (fcntl(file.descriptor(), F_OFD_SETLK, &lock) != 0) return failed(path);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
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
  region.ticket_ =
      host_name() + " " + std::to_string(getpid()) + " " + std::to_string(region.file_.descriptor()) + " " + token;
  return made;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::join(const Shape& shape, const std::string& ticket) {
  std::istringstream words(ticket);
  std::string host, process, descriptor, token;
  words >> host >> process >> descriptor >> token;
  if (host != host_name()) return Error{"rank 0 is on " + printable(host)};
  auto joined = map(shape, "/proc/" + process + "/fd/" + descriptor, ticket);
  if (joined && std::string_view((*joined)->header_->token, kTokenSize) != token)
    return Error{"process " + process + " is another one here"};
  return joined;
}

SharedRegion::~SharedRegion() { munmap(memory_, bytes_of(shape_)); }

void SharedRegion::begin(std::uint64_t what) {
  ++operation_;
  state(shape_.rank).operations[operation_ % 2] = what;
}

bool SharedRegion::is_complete() const {
  return static_cast<std::int32_t>(header_->round.load(std::memory_order_acquire) - round_) >= 0;
}

void SharedRegion::wait_for_all(milliseconds timeout) {
  ++round_;
  check_end();  // who comes when the others have given up would find all of them there
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
  const bool tries_again = round_ % kTryAgain == 0;
  const nanoseconds patience = tries_again ? kLongestLook : patience_;
  const auto begin = Clock::now();
  do {
    for (int look = 0; look < kLooks; ++look) {
      if (is_complete()) {
        patience_ = std::min(2 * patience, kLongestLook);
        return true;
      }
      relax();
    }
  } while (Clock::now() - begin < patience);
  if (!tries_again) patience_ = std::max(patience_ / 2, kShortestLook);
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
      lost("timed out after " + std::to_string(timeout.count()) + " ms");
    }
    const timespec nap{0, std::chrono::duration_cast<nanoseconds>(kLookAround).count()};
    if (futex(header_->round, FUTEX_WAIT, seen, &nap) != 0 && errno == ETIMEDOUT) check_alive();
  }
  header_->sleepers.fetch_sub(1);
}

void SharedRegion::end(End why) {
  std::uint32_t none = kNone;
  header_->end.compare_exchange_strong(none, why);
  futex(header_->round, FUTEX_WAKE, INT_MAX, nullptr);
}

// The others fail as the one did that ended it.
void SharedRegion::check_end() const {
  const std::uint32_t why = header_->end.load();
  if (why == kNone || is_complete()) return;
  lost(why == kTimedOut ? "another rank timed out" : "a rank has cut the connection");
}

// A rank that came and ended is not asked for its lock.
void SharedRegion::check_alive() const {
  for (int rank = 0; rank < shape_.size; ++rank) {
    struct flock lock = lock_of(rank);
    if (rank == shape_.rank || fcntl(file_.descriptor(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
    if (state(rank).round.load(std::memory_order_acquire) != round_ && !is_complete())
      lost("the connection to rank " + std::to_string(rank) + " is gone, for it has ended");
  }
}

void SharedRegion::check_same() const {
  const auto of = [&](int rank) { return state(rank).operations[operation_ % 2]; };
  for (int rank = 1; rank < shape_.size; ++rank) {
    if (of(rank) == of(0)) continue;
    throw TrainError("ranks 0 and " + std::to_string(rank) +
                     " of a group are in different collectives, or have tensors of different sizes or types");
  }
}

}  // namespace torchbridge::train
