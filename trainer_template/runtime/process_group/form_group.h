// Makes a c10d::ProcessGroup of its backends, in the way of Python's _new_process_group_helper
// (torch/distributed/distributed_c10d.py).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torchbridge/backend.h>

#include "trainer_template/runtime/backends/device_backends.h"
#include "trainer_template/runtime/process_group/connections.h"

namespace torchbridge::train {

// A group with its connections. Movable; the destructor removes them from `connections`.
class FormedGroup {
 public:
  FormedGroup() = default;
  FormedGroup(c10::intrusive_ptr<c10d::ProcessGroup> made, std::shared_ptr<Connections> connections)
      : group(std::move(made)), connections_(std::move(connections)) {}
  FormedGroup(FormedGroup&&) = default;
  FormedGroup& operator=(FormedGroup&&) = delete;
  ~FormedGroup();

  const std::shared_ptr<Connections>& connections() const { return connections_; }
  // Of the connections: in order, when all ranks have come to it, or at once. Both may hang.
  void shut_down();
  void abort() { connections_->abort(handles_); }
  void add(Connections::BackendLink link) {
    handles_.push_back(connections_->add(std::move(link)));
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int number = 0;  // of a subgroup, the same on all its ranks: a later one has a higher number

 private:
  std::shared_ptr<Connections> connections_;
  std::vector<Connections::Handle> handles_;
};

// Which backend serves each device: `requested` with the devices filled in. Opens the libraries of
// the backends. Throws TrainError.
std::vector<DeviceBackend> backends_of(const std::vector<DeviceBackend>& requested);

// "gloo", "cpu:gloo,cuda:nccl": as the user would write it.
std::string text_of(const std::vector<DeviceBackend>& backends);

// Collective over the group's ranks. `request.store` is the parent of all groups' stores. The group
// is split from `whole`, where backends can do that; null for the first group.
// TORCH_DISTRIBUTED_DEBUG=DETAIL wraps backends as Python does.
FormedGroup form_group(const std::vector<DeviceBackend>& backends, BackendRequest request,
                       std::shared_ptr<Connections> connections, c10d::ProcessGroup* whole);

// Where a backend has not connected after `time`, `report` is called on a thread of its own, with
// the interfaces on which the backend has begun to listen, and the process ends.
struct ConnectLimit {
  std::chrono::milliseconds time{};
  std::function<void(const std::set<std::string>&)> report;
};

// Collective over the group's ranks, where it is on a GPU.
void connect_eagerly(FormedGroup& formed, const ConnectLimit& limit);

// For the ranks outside of a subgroup, while its ranks connect.
void stay_out_of_group(const std::vector<DeviceBackend>& backends, c10d::ProcessGroup& whole,
                       const ConnectLimit& limit);

}  // namespace torchbridge::train
