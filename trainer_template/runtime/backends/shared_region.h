// Memory that the ranks of a group share on one node, and a barrier in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge::train {

// Each rank has two slots, which it writes in turn. The memory has no name (memfd_create): the
// kernel frees it when the last process that maps it ends, in whatever way. A rank that ends
// releases its lock on the file, which shows the others its end.
class SharedRegion {
 public:
  struct Shape {
    int rank = 0, size = 1;
    std::size_t slot_bytes = 0;  // a multiple of 64; the same on all ranks
  };

  // On rank 0. The others join by its ticket().
  static Result<std::shared_ptr<SharedRegion>> create(const Shape& shape);
  // An error where the ticket is of another node, or this process cannot see rank 0's.
  static Result<std::shared_ptr<SharedRegion>> join(const Shape& shape, const std::string& ticket);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  const std::string& ticket() const { return ticket_; }
  // A rank's slot of the current operation.
  char* slot(int rank) const;

  // Begins the next operation, which uses the other slots. `operation` must be the same on all
  // ranks.
  void begin(std::uint64_t operation);
  // A barrier: afterwards all that the ranks wrote before can be read. Throws
  // c10::DistBackendError where a rank has ended, the region was aborted or the time is over;
  // TrainError where a rank began another operation.
  void wait_for_all(std::chrono::milliseconds timeout);
  // Waits fail from here on, on all ranks. Any thread.
  void abort() { end(kAborted); }

 private:
  struct Header;
  SharedRegion(const Shape& shape, Socket file, char* memory, std::string ticket);
  static Result<std::shared_ptr<SharedRegion>> map(const Shape& shape, const std::string& path,
                                                   std::string ticket);
  enum End : std::uint32_t { kNone, kAborted, kTimedOut };
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
  Socket file_;  // an open file description of its own, which holds the lock
  char* memory_ = nullptr;
  Header* header_ = nullptr;
  std::string ticket_;
  std::uint32_t round_ = 0;  // of wait_for_all
  std::uint32_t operation_ = 0;
  std::chrono::nanoseconds spin_time_{};  // before it sleeps
};

}  // namespace torchbridge::train
