// Some or all ranks of a job, and their collectives.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace c10d {
class ProcessGroup;
}

namespace torchbridge::train {

class FormedGroup;

// Every member function is a collective unless it is marked "not collective": all ranks of the group call it, in the
// same order, from one thread. They throw when a rank is lost or does not take part within the timeout.
class RankGroup {
 public:
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Not collective: the index of this rank in this group.
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool is_first() const { return rank_ == 0; }

  void barrier();
  // In place. A tensor on the CPU is summed by any group, on a GPU by one with a backend for it.
  void sum(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root = 0);
  std::int64_t minimum(std::int64_t value);
  // The root's text; the argument of the others is not used.
  std::string broadcast(const std::string& text, int root = 0);
  // One text of each rank, in the order of the ranks.
  std::vector<std::string> all_gather(const std::string& text);

  // Not collective: for code that uses c10d itself.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

 protected:
  RankGroup(int rank, int world_size);
  ~RankGroup();

  void take(FormedGroup formed);
  bool is_formed() const { return formed_ != nullptr; }
  // The orderly end: waits for the ranks of the group, ten seconds at most, then releases it.
  void leave_group();
  // Releases the group without a wait.
  void release();
  // Whether an exception leaves the scope of this.
  bool is_unwinding() const;

 private:
  at::TensorOptions small() const;

  int rank_, world_size_;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<FormedGroup> formed_;
};

// Some of the ranks. Ends with its scope: in order, or, where an exception leaves the scope, at once.
class Subgroup : public RankGroup {
 public:
  // Made by ProcessGroup.
  Subgroup(FormedGroup formed, std::vector<int> ranks, int rank);
  ~Subgroup();

  // By their ranks in the whole group, ascending.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

}  // namespace torchbridge::train
