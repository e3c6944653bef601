// What a program says about its process group: the parameters of torch.distributed.init_process_group
// (https://docs.pytorch.org/docs/stable/distributed.html), with Python's names and meanings. docs/use/process_groups.md has
// both side by side.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "bridge/core/init_method.h"
#include "trainer_template/runtime/backends/cuda_devices.h"

namespace torchbridge::train {

struct GlooOptions {
  // Network interfaces by name, over which the connections are spread; empty: GLOO_SOCKET_IFNAME, else the interface of
  // the address by which the others reach this rank.
  std::vector<std::string> interfaces;
  int threads = 0;  // that run collectives; 0: two an interface
  // All-reduces and broadcasts of tensors of up to 1 MiB go over memory that the ranks of one node share, with gloo's
  // own sums, bit for bit (shared_gloo.h); where a rank cannot map it, by gloo's connections. Not set: where no backend
  // is named, on the CPU.
  std::optional<bool> shared_memory;
};

// Nothing: NCCL's own default, or NCCL_* of the environment. What the numbers mean is in NCCL's manual, ncclConfig_t.
struct NcclOptions {
  bool high_priority_stream = false;  // collectives overtake kernels that wait for the GPU
  std::optional<int> blocking, cga_cluster_size, min_ctas, max_ctas, split_share, traffic_class, collnet_enable,
      cta_policy, shrink_share, nvls_ctas;
  std::string net_name;
};

struct PgOptions {
  GlooOptions gloo;
  NcclOptions nccl;
};

struct GroupOptions {
  // "gloo", "nccl", "mpi", or a registered one (backend.h): for all devices that it serves. "cpu:gloo,cuda:nccl": one a
  // device.
  // "": by device_id: gloo for the CPU, and nccl for a GPU beside it.
  std::string backend;
  InitMethod init_method;
  std::chrono::milliseconds timeout{
      0};                  // the longest wait in one collective; 0: Python's, 10 minutes with nccl, else 30
  GivenRanks ranks;        // what init_method, or the environment, says as well must agree
  std::string group_name;  // two groups that join at one store need two names
  PgOptions pg_options;
  // The device of this rank. A GPU: its communicator is formed at once, instead of by the first collective. Without an
  // index it is chosen by LOCAL_RANK (cuda_devices.h).
  std::optional<c10::Device> device_id;
  // What else the program needs of the GPU that it came to; asked before the ranks join, and the error ends the
  // job. Empty: nothing.
  std::function<Status(const CudaGpu&)> check_gpu;

  // Until all ranks are there; never longer than `timeout`. 0: 60 s, with a GPU 300 s, for a cluster's cold file
  // system may take minutes for libtorch_cuda, NCCL and cuDNN.
  std::chrono::milliseconds join_timeout{0};
  std::chrono::milliseconds heartbeat_timeout =
      std::chrono::seconds(4);  // a rank that is stopped so long ends the job; 0: none does; rank 0's counts

  // How long ranks are waited for: join_timeout, or what its 0 stands for, within `timeout`.
  std::chrono::milliseconds time_to_join() const;
};

}  // namespace torchbridge::train
