// Backends of process groups: what one is made from, and the table of backends by name, to which
// programs and libraries add.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchbridge/group_options.h>

namespace torchbridge::train {

// What a backend is made from.
struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // only this backend sets keys below it
  int rank = 0, size = 1;                 // in the group
  std::vector<std::uint64_t> ranks;       // of the job, ascending, in a subgroup; empty: all
  std::string group_name;
  std::chrono::milliseconds timeout{};          // of a collective
  std::chrono::milliseconds connect_timeout{};  // until the backend is connected
  std::string address;                          // numeric; the other ranks reach this process by it
  PgOptions options;
  std::optional<c10::Device> device;  // with an index where the group is bound to a GPU
  // Of a subgroup: the backend of the whole group, where it can be split and is bound to a GPU.
  c10d::Backend* split_from = nullptr;
  int split_color = 0;  // the same for the ranks of one subgroup
  // The backend is asked for getError() all the time, by two threads maybe at once, and an error
  // ends the group. Not with one rank or no heartbeat.
  bool is_watched = false;
};

struct MadeBackend {
  // A collective that fails because of another rank throws a c10::DistError: any other error counts
  // as this rank's own.
  c10::intrusive_ptr<c10d::Backend> backend;
  // Ends the collectives under way and the connections, so that peers notice. Any thread; called at
  // most once. It must not keep the backend alive.
  std::function<void()> abort;
};

struct BackendEntry {
  std::vector<std::string> devices;                        // whose tensors it takes: "cpu", "cuda"
  std::function<MadeBackend(const BackendRequest&)> make;  // throws an error that names the cause
  // Called instead of `make` on ranks outside of a subgroup that is split from a bound group; may
  // be empty.
  std::function<void(c10d::Backend& split_from, c10::Device device)> stay_out;
  // The flight recorder of its own, as JSON, at any time and from any thread. Empty: it records in
  // libtorch's.
  std::function<std::string()> flight_record = {};
  // Of the backend nccl: the name of what no two ranks of one host may share of a GPU; empty: they
  // may share it. Empty function: all GPUs.
  std::function<std::string(const CudaGpu& gpu)> exclusive_gpu = {};
};

// Backends that are not in the table are searched as libtorchbridge_NAME.so: in the program's
// folder, in ../lib from there, and where the dynamic linker searches. The library exports this
// function, and stays loaded.
using FillBackendEntry = void(BackendEntry&);
// The number changes with these structs.
inline constexpr const char* kFillBackendEntry = "torchbridge_fill_backend_entry_4";

// Must be called before a group uses `name`, which is in lower case. gloo is registered already;
// nccl and mpi are libraries as above. Not thread-safe.
void register_backend(const std::string& name, BackendEntry entry);

// Throws TrainError, which names the library that was searched.
const BackendEntry& find_backend(const std::string& name);

// The flight recorders of the backends that were found so far and have their own: name to JSON.
std::map<std::string, std::string> own_flight_records();

}  // namespace torchbridge::train
