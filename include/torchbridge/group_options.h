// The options of a process group: the parameters of torch.distributed.init_process_group
// (https://docs.pytorch.org/docs/stable/distributed.html), with Python's names and meanings.
// docs/use/process_groups.md compares the two.
#pragma once

#include <chrono>
#include <compare>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "bridge/base/result.h"
#include "bridge/core/init_method.h"

namespace torchbridge::train {

// NVIDIA's compute capability: 9.0 of an H100.
struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};

struct CudaGpu {
  std::string name;                      // "NVIDIA H100 80GB HBM3"
  std::optional<Capability> capability;  // empty where the driver does not give it
  // Empty likewise.
  std::string bus_id;  // "0000:06:00.0"; slices of one GPU (MIG) share it
  std::string uuid;    // "GPU-0011...", as nvidia-smi -L; that of the whole GPU for a slice
};

struct GlooOptions {
  // Names of network interfaces, over which the connections are spread; empty: GLOO_SOCKET_IFNAME,
  // else the interface of the address by which the other ranks reach this one.
  std::vector<std::string> interfaces;
  int threads = 0;  // that run collectives; 0: two for each interface
  // All-reduces and broadcasts of tensors of up to 1 MiB go over memory that the ranks of one node
  // share, with gloo's sums bit for bit; over gloo's connections where a rank
  // cannot map the memory. Not set: on for a group on the CPU whose backend is not named.
  std::optional<bool> shared_memory;
};

// An empty field: NCCL's own default, or NCCL_* of the environment. NCCL's manual describes the
// fields (ncclConfig_t).
struct NcclOptions {
  bool high_priority_stream = false;  // collectives run before kernels that wait for the GPU
  std::optional<int> blocking, cga_cluster_size, min_ctas, max_ctas, split_share, traffic_class,
      collnet_enable, cta_policy, shrink_share, nvls_ctas;
  std::string net_name;
};

struct PgOptions {
  GlooOptions gloo;
  NcclOptions nccl;
};

struct GroupOptions {
  // "gloo", "nccl", "mpi", or a registered one (<torchbridge/backend.h>): for all devices that it
  // serves. "cpu:gloo,cuda:nccl": one for each device. "": by device_id: gloo for the CPU, and nccl
  // also for a GPU.
  std::string backend;
  InitMethod init_method;
  // The longest wait in one collective; 0: Python's default, 10 minutes with nccl, else 30.
  std::chrono::milliseconds timeout{0};
  GivenRanks ranks;  // must agree with init_method and the environment, where these set them too
  std::string group_name;  // two groups that join at one store need two names
  PgOptions pg_options;
  // The device of this rank. A GPU: its communicator is formed at once, instead of by the first
  // collective; without an index LOCAL_RANK selects it.
  std::optional<c10::Device> device_id;
  // The program's own check of the GPU. Called before the ranks join; an error ends the job. May be
  // empty.
  std::function<Status(const CudaGpu&)> check_gpu;

  // Until all ranks have joined; never longer than `timeout`. 0: 60 s, with a GPU 300 s, because a
  // cluster's cold file system may take minutes to load libtorch_cuda, NCCL and cuDNN.
  std::chrono::milliseconds join_timeout{0};
  // A rank that sends no heartbeat for so long ends the job; 0: no heartbeat. Rank 0's value holds
  // for all ranks.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(4);
  // Whether the run has been asked to stop; called on a thread of the group. With a
  // heartbeat_timeout of 0 a rank that sends nothing for 5 s from then on ends the job. Empty:
  // never.
  std::function<bool()> is_stopping;

  // join_timeout, or the default that its 0 means, but never longer than `timeout`.
  std::chrono::milliseconds time_to_join() const;
};

}  // namespace torchbridge::train
