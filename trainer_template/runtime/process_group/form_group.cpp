#include "trainer_template/runtime/process_group/form_group.h"

#include <algorithm>
#include <map>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torchbridge/backend.h>
#include <torchbridge/errors.h>

#include "bridge/base/env_map.h"
#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/gloo_backend.h"
#include "trainer_template/runtime/backends/open_sockets.h"
#include "trainer_template/runtime/process_group/timed_group.h"
#include "trainer_template/runtime/rendezvous/abort_watchdog.h"

namespace torchbridge::train {
namespace {

using Type = c10d::ProcessGroup::BackendType;

c10::DeviceType device_type(const DeviceBackend& one) {
  try {
    return c10::Device(one.device).type();
  } catch (const std::exception&) {
    throw TrainError(formatted("backend '{}:{}': libtorch has no device '{}'", one.device,
                               one.backend, printable(one.device)));
  }
}

Type type_of(const DeviceBackend& one) { return c10d::ProcessGroup::strToBackendType(one.backend); }

// The type of the group as a whole: NCCL where it is among its backends, else a backend of the
// user's, else the first.
Type default_type(const std::vector<DeviceBackend>& backends) {
  for (const Type preferred : {Type::NCCL, Type::CUSTOM}) {
    if (std::ranges::count(backends, preferred, type_of) > 0) return preferred;
  }
  return type_of(backends.front());
}

c10::intrusive_ptr<c10d::Store> below(const std::string& prefix,
                                      const c10::intrusive_ptr<c10d::Store>& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

// Compares each collective of the ranks, over a gloo backend of its own, before the backend runs
// it.
MadeBackend with_checks(MadeBackend made, BackendRequest request) {
  request.store = below("pg_wrapper:" + request.group_name, request.store);
  MadeBackend helper = make_gloo(request);
  auto wrapper = c10::make_intrusive<c10d::ProcessGroupWrapper>(made.backend, helper.backend);
  return {wrapper, [first = std::move(made.abort), second = std::move(helper.abort)] {
            second();  // gloo's, which does not throw
            first();
          }};
}

// The backend without the checks of TORCH_DISTRIBUTED_DEBUG=DETAIL.
c10::intrusive_ptr<c10d::Backend> unwrapped(c10::intrusive_ptr<c10d::Backend> backend) {
  auto* const wrapper = dynamic_cast<c10d::ProcessGroupWrapper*>(backend.get());
  return wrapper ? wrapper->getWrappedPg() : backend;
}

// Empty for a backend that has no errors of its own threads to show: before libtorch 2.14 most
// throw, since then they return SUCCESS.
std::function<c10d::ErrorType()> error_of(Type type, c10d::Backend& backend) {
  if (type == Type::GLOO || type == Type::MPI) return {};
  try {
    backend.getError();
  } catch (const std::exception&) {
    return {};
  }
  return [&backend] {
    try {
      return backend.getError();
    } catch (const std::exception&) {
      return c10d::ErrorType::COMM_ERROR;
    }
  };
}

}  // namespace

FormedGroup::~FormedGroup() {
  for (const auto& handle : handles_) connections_->remove(handle);
}

void FormedGroup::shut_down() {
  connections_->begin_end(handles_);
  group->shutdown();
}

std::vector<DeviceBackend> backends_of(const std::vector<DeviceBackend>& requested) {
  std::vector<DeviceBackend> found;
  std::string custom;
  for (const DeviceBackend& one : requested) {
    if (type_of(one) != Type::CUSTOM || one.backend == custom) continue;
    if (!custom.empty()) {
      throw TrainError(
          formatted("backend '{}': c10d allows one backend in a group that is not its own, but {} "
                    "and {} are two",
                    text_of(requested), custom, one.backend));
    }
    custom = one.backend;
  }
  for (const DeviceBackend& one : requested) {
    const BackendEntry& entry = find_backend(one.backend);
    if (one.device.empty()) {
      for (const std::string& device : entry.devices) found.push_back({device, one.backend});
      continue;
    }
    device_type(one);
    if (std::ranges::count(entry.devices, one.device) == 0) {
      throw TrainError(formatted("backend '{}:{}': {} serves {} only", one.device, one.backend,
                                 one.backend, joined(entry.devices, ", ")));
    }
    found.push_back(one);
  }
  return found;
}

std::string text_of(const std::vector<DeviceBackend>& backends) {
  const bool one_name = std::ranges::all_of(
      backends, [&](const auto& b) { return b.backend == backends.front().backend; });
  if (one_name) return backends.front().backend;
  std::string text;
  for (const DeviceBackend& one : backends)
    text += (text.empty() ? "" : ",") + one.device + ":" + one.backend;
  return text;
}

FormedGroup form_group(const std::vector<DeviceBackend>& backends, BackendRequest request,
                       std::shared_ptr<Connections> connections, c10d::ProcessGroup* whole) {
  const auto store = below(request.group_name + "/", request.store);
  const bool detail = c10d::debug_level() == c10d::DebugLevel::Detail;
  const bool all_gloo =
      std::ranges::all_of(backends, [](const auto& one) { return type_of(one) == Type::GLOO; });
  const c10::intrusive_ptr<c10d::ProcessGroup> timed = c10::make_intrusive<TimedGroup>(
      store, request.rank, request.size, connections,
      TimedGroup::Traits{.is_whole = whole == nullptr, .has_futures = all_gloo});
  FormedGroup formed(timed, std::move(connections));
  auto& group = *formed.group;
  // c10d::Logger casts the backend of a group of type GLOO to ProcessGroupGloo, which the wrapper
  // is not.
  const bool hide_gloo = detail && default_type(backends) == Type::GLOO;
  group.setDefaultBackend(hide_gloo ? Type::CUSTOM : default_type(backends));
  const bool on_gpu = request.device && !request.device->is_cpu();
  if (on_gpu) group.setBoundDeviceId(request.device);
  std::map<std::string, c10::intrusive_ptr<c10d::Backend>> made_already;
  for (const DeviceBackend& one : backends) {
    auto& backend = made_already[one.backend];
    const Type type = hide_gloo && type_of(one) == Type::GLOO ? Type::CUSTOM : type_of(one);
    if (!backend) {
      BackendRequest own = request;
      own.store = below(one.device + "/", store);
      // Only a group that was connected eagerly can be split.
      if (whole && on_gpu && request.device->type() == device_type(one))
        own.split_from = unwrapped(whole->getBackend(device_type(one))).get();
      const NewListeners listeners;
      MadeBackend made = find_backend(one.backend).make(own);
      auto error = error_of(type_of(one), *made.backend);
      // As in Python, which does not wrap MPI.
      if (detail && type != Type::MPI) made = with_checks(std::move(made), own);
      if (error) formed.connections()->add_interfaces(listeners.interfaces());
      formed.add({std::move(made.abort), std::move(error)});
      backend = made.backend;
    }
    group.setBackend(device_type(one), type, backend);
  }
  group.setGroupName(request.group_name);
  group.setGroupDesc(whole ? "subgroup" : "default_pg");
  return formed;
}

// Without this the communicator is formed by the first collective, whose error NCCL reports only
// through the GPU.
void connect_eagerly(FormedGroup& formed, const ConnectLimit& limit) {
  const auto device = formed.group->getBoundDeviceId();
  if (!device) return;
  const auto backend = unwrapped(formed.group->getBackend(device->type()));
  if (!backend->supportsSplitting()) return;
  const NewListeners listeners;
  AbortWatchdog watchdog(limit.time, [&] { limit.report(listeners.interfaces()); });
  watchdog.start();
  backend->eagerConnectSingleDevice(*device);
  formed.connections()->add_interfaces(listeners.interfaces());
}

void stay_out_of_group(const std::vector<DeviceBackend>& backends, c10d::ProcessGroup& whole,
                       const ConnectLimit& limit) {
  const auto device = whole.getBoundDeviceId();
  if (!device) return;
  AbortWatchdog watchdog(limit.time, [&] { limit.report({}); });
  watchdog.start();
  for (const DeviceBackend& one : backends) {
    const BackendEntry& entry = find_backend(one.backend);
    if (entry.stay_out && device_type(one) == device->type())
      entry.stay_out(*unwrapped(whole.getBackend(device->type())), *device);
  }
}

}  // namespace torchbridge::train
