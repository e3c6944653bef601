// What a backend of a process group is made from, and what it is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer_template/runtime/backends/group_options.h"

namespace torchbridge::train {

// What a backend is made from.
struct BackendRequest {
  c10::intrusive_ptr<c10d::Store> store;  // its keys are this backend's alone
  int rank = 0, size = 1;                 // in the group
  std::vector<std::uint64_t> ranks;       // of the job, ascending, in a subgroup; empty: all
  std::string group_name;
  std::chrono::milliseconds timeout{};          // of a collective
  std::chrono::milliseconds connect_timeout{};  // until the backend is there
  std::string address;                          // numeric, by which the others reach this process
  PgOptions options;
  std::optional<c10::Device> device;  // with an index where the group is bound to a GPU
  c10d::Backend* split_from =
      nullptr;          // a subgroup's: the backend of the whole group, where it can be split and is bound
  int split_color = 0;  // the same for the ranks of one subgroup
};

struct MadeBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  // Ends what waits in it, and its connections, so that peers notice. Any thread; called at most once. It must not keep
  // the backend alive.
  std::function<void()> abort;
};

struct BackendEntry {
  std::vector<std::string> devices;                        // whose tensors it takes: "cpu", "cuda"
  std::function<MadeBackend(const BackendRequest&)> make;  // throws what names the cause
  // Called instead of `make` on ranks outside of a subgroup that is split from a bound group; empty: nothing is.
  std::function<void(c10d::Backend& split_from, c10::Device device)> stay_out;
};

// Backends that are not in the table are looked for in libtorchbridge_NAME.so: beside the program, in ../lib from
// there, and where the dynamic linker looks. The library exports this function, and its code stays loaded.
using FillBackendEntry = void(BackendEntry&);
inline constexpr const char* kFillBackendEntry =
    "torchbridge_fill_backend_entry_1";  // the number is that of these structs

}  // namespace torchbridge::train
