// Memory that the ranks of a group share on one node, and how they wait for each other in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge::train {

// Each rank has two slots, which it writes in turn. The memory has no name (memfd_create): nothing is left of it when
// the last process that maps it is gone, however it ended. A rank that ends releases its lock on the file, by which the
// others find that out.
class SharedRegion {
 public:
  struct Shape {
    int rank = 0, size = 1;
    std::size_t slot_bytes = 0;  // a multiple of 64; the same on all ranks
  };

  // On rank 0, whose ticket() leads the others to it.
  static Result<std::shared_ptr<SharedRegion>> create(const Shape& shape);
  // An error where the ticket is of another node, or its process cannot be seen from here.
  static Result<std::shared_ptr<SharedRegion>> join(const Shape& shape, const std::string& ticket);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string& ticket() const { return ticket_; }
  // A rank's slot of the operation that is under way.
  char* slot(int rank) const;

  // The next operation begins: the slots change. `what` must be the same on all ranks.
  void begin(std::uint64_t what);
  // Waits until all ranks have come here, as often as this one has: what they wrote before can be read after it. Throws
  // c10::DistBackendError, in whose text is "gloo" as in those of gloo's own connections, where a rank has ended, the
  // region was cut or the time is over; TrainError where a rank began something else.
  void wait_for_all(std::chrono::milliseconds timeout);
  // Who waits fails, on all ranks. Any thread.
  void abort() { end(kCut); }

 private:
  struct Header;
  SharedRegion(const Shape& shape, Socket file, char* memory, std::string ticket);
  static Result<std::shared_ptr<SharedRegion>> map(const Shape& shape, const std::string& path, std::string ticket);
  enum End : std::uint32_t { kNone, kCut, kTimedOut };
  struct RankState;
  static std::size_t bytes_before_slots(const Shape& shape);
  static std::size_t bytes_of(const Shape& shape);
  RankState& state(int rank) const;
  bool is_complete() const;
  bool spin();
  void sleep(std::chrono::milliseconds timeout);
  void end(End why);
  void check_end() const;
  void check_alive() const;
  void check_same() const;

  Shape shape_;
  Socket file_;  // its own description of the file, on which the lock is
  char* memory_ = nullptr;
  Header* header_ = nullptr;
  std::string ticket_;
  std::uint32_t round_ = 0;  // of wait_for_all
  std::uint32_t operation_ = 0;
  std::chrono::nanoseconds patience_{};  // without sleep
};

}  // namespace torchbridge::train
