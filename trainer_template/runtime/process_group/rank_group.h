// Some ranks of a job, or all, and what they do together.
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

// Every member function is a collective unless it says otherwise: all ranks of the group call it, in the same order,
// from one thread. They throw when a rank is gone or does not come in time.
class RankGroup {
 public:
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Not collective: the place in this group.
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
  // One a rank, in their order.
  std::vector<std::string> all_gather(const std::string& text);

  // Not collective: for what builds on c10d itself.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const;

 protected:
  RankGroup(int rank, int world_size);
  ~RankGroup();

  void take(FormedGroup formed);
  bool is_formed() const { return formed_ != nullptr; }
  // The orderly end: waits for the ranks of the group, ten seconds at most, then releases it.
  void part();
  // The other one; nothing is waited for.
  void release();
  // Whether the scope of this is left by an exception.
  bool is_unwinding() const;

 private:
  at::TensorOptions small() const;

  int rank_, world_size_;
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<FormedGroup> formed_;
};

// A part of the ranks, which ends with its scope: in order, or, where an exception leaves the scope, at once.
class Subgroup : public RankGroup {
 public:
  // Made by ProcessGroup.
  Subgroup(FormedGroup formed, std::vector<int> ranks, int rank);
  ~Subgroup();

  // Of the whole group, ascending.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

}  // namespace torchbridge::train
