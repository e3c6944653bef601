// The backend nccl. A library of its own, because libtorch_cuda costs a process 350 MB and 0.1 s
// even on a machine without a GPU.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include <c10/util/Flags.h>
#include <c10/util/env.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torchbridge/backend.h>
#include <torchbridge/errors.h>

#include "backends/nccl/nccl_options.h"
#include "backends/nccl/nccl_versions.h"
#include "backends/nccl/stalled_counter.h"
#include "trainer_template/runtime/backends/c10d_versions.h"

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::nccl {
namespace {

constexpr int kFatal = 3;  // of TORCH_CPP_LOG_LEVEL

using train::BackendRequest;
using train::MadeBackend;

// The one place that chooses a class of libtorch, in all versions this one. From 2.15 on Python
// takes c10d::nccl2's for "nccl", and calls this one "nccl-legacy". The watchdog of nccl2's ends
// the process by abort() as soon as it finds an error or a timeout, before a heartbeat can report
// which rank is late, unless TORCH_NCCL_ASYNC_ERROR_HANDLING is 0 or 2. It also has no flight
// recorder of its own, and its group must be bound to its device by setBoundDeviceId().
using LibtorchNccl = c10d::ProcessGroupNCCL;

// As long as libtorch waits itself until it takes its watchdog for stuck: then it ends the process.
std::chrono::seconds stalled_watchdog() {
  constexpr int kUsual = 480;
  return std::chrono::seconds(c10d::getCvarInt(c10d::TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, kUsual));
}

// Less than the second for which the rank that reports waits for the others (failure_report.cpp).
constexpr std::chrono::milliseconds kDump{500};

// The calling thread may catch nothing. After a CUDA error every call of CUDA throws it again.
template <class Call>
void quietly(const Call& call) {
  try {
    call();
  } catch (const std::exception&) {
    // The group is broken already, and the first error is the one to report.
  }
}

// A watchdog that no longer runs, because an error of CUDA ended it (see below), is an error too:
// nothing else would find a timeout then.
class Nccl : public LibtorchNccl {
 public:
  using LibtorchNccl::LibtorchNccl;
  c10d::ErrorType getError() override {
    const c10d::ErrorType error = LibtorchNccl::getError();
    constexpr std::uint64_t kNotStarted = 1;  // as with TORCH_NCCL_BLOCKING_WAIT
    const std::uint64_t beats = getWatchdogHeartbt();
    const bool is_stalled =
        beats > kNotStarted && watchdog_.is_stalled(beats, std::chrono::steady_clock::now());
    return error == c10d::ErrorType::SUCCESS && is_stalled ? c10d::ErrorType::COMM_ERROR : error;
  }
  // For torchfrtrace, once in a process, in a thread that the abort waits for no longer than
  // kDump: the folder may be on a file system that hangs. libtorch's monitor does it up to a second
  // after a timeout or an error of any rank, unless an abort has ended it, or the store is gone by
  // then. Not only after an error of this rank's: torchfrtrace compares all ranks, also the one
  // that was late.
  void write_flight_record() {
    static std::atomic<bool> is_written{false};
    const bool is_wanted = c10d::getCvarBool(c10d::TORCH_NCCL_DUMP_ON_TIMEOUT, true);
    if (!is_wanted || getSize() == 1 || is_written.exchange(true)) return;
    std::promise<void> written;
    const std::future<void> end = written.get_future();
    const auto self = c10::intrusive_ptr<Nccl>::unsafe_reclaim_from_nonowning(this);
    std::thread([self, written = std::move(written)]() mutable {
      const int level_before = FLAGS_caffe2_log_level;
      FLAGS_caffe2_log_level = kFatal;  // it logs as an error that it begins
      quietly([&] { self->dumpDebuggingInfo(/*includeStackTrace=*/false); });
      FLAGS_caffe2_log_level = level_before;
      written.set_value();
    }).detach();
    end.wait_for(kDump);
  }

 private:
  StalledCounter watchdog_{stalled_watchdog()};
};

c10::intrusive_ptr<LibtorchNccl::Options> options_of(const BackendRequest& request) {
  auto options = LibtorchNccl::Options::create(request.options.nccl.high_priority_stream);
  options->config = config_of(request.options.nccl);
  options->timeout = request.timeout;
  options->group_name = request.group_name;
  options->global_ranks_in_group = request.ranks;
  if (auto* whole = dynamic_cast<LibtorchNccl*>(request.split_from)) {
    options->split_from = c10::intrusive_ptr<LibtorchNccl>::unsafe_reclaim_from_nonowning(whole);
    options->split_color = request.split_color;
  }
  return options;
}

// The record is of all groups of the process: the whole group's abort, after which nothing runs,
// writes it, and not that of a subgroup which an exception left that the program handled.
void abort_backend(Nccl& nccl, bool is_whole) {
  if (is_whole) quietly([&] { nccl.write_flight_record(); });
  quietly([&] { nccl.abort(); });
}

// NCCL's watchdog would throw a timeout or an error of CUDA in its own thread, which ends the
// process by SIGABRT before our line is written. A watchdog that is made with this variable throws
// nothing: in libtorch 2.11 to 2.14 it compares the text of the error with "CUDA Error", with which
// none begins, and in 2.15 it does not compare. A group that nobody watches would then wait
// forever, so the variable has that value for this one alone. Later it has libtorch's own, and is
// not removed: libtorch's threads read the environment by now, under the lock of set_env().
c10::intrusive_ptr<Nccl> make_nccl(const BackendRequest& request) {
  constexpr const char* kVariable = "TORCH_NCCL_RETHROW_CUDA_ERRORS";
  static const bool is_given = c10::utils::has_env(kVariable);
  const bool is_ours = request.is_watched && !is_given;
  if (is_ours) c10::utils::set_env(kVariable, "0");
  auto made =
      c10::make_intrusive<Nccl>(request.store, request.rank, request.size, options_of(request));
  if (is_ours) c10::utils::set_env(kVariable, "1");
  return made;
}

MadeBackend make(const BackendRequest& request) {
  auto backend = make_nccl(request);
  train::agree_on_sequence_numbers(*backend);
  auto* const nccl = backend.get();
  const bool is_whole = request.ranks.empty();
  return {std::move(backend), [nccl, is_whole] { abort_backend(*nccl, is_whole); }};
}

// NCCL splits a communicator collectively over all its ranks, also those outside of the new group.
void stay_out(c10d::Backend& split_from, c10::Device device) {
  if (auto* whole = dynamic_cast<LibtorchNccl*>(&split_from)) whole->performNocolorSplit(device);
}

std::string flight_record() {
  return c10d::dump_nccl_trace_json(/*includeCollectives=*/true, /*onlyActive=*/false);
}

// Of the process; 0 where NCCL is a part of libtorch_cuda.
int library_version() {
  int version = 0;
  auto* const get_version =
      reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  return get_version && get_version(&version) == ncclSuccess ? version : 0;
}

std::string exclusive_gpu(const train::CudaGpu& gpu) {
  const int version = library_version();
  const char* several_ranks = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return compared_gpu(version > 0 ? version : code_of(torch::cuda::nccl::version()), gpu,
                      several_ranks ? several_ranks : "");
}

// The layout of ncclConfig_t, which is a part of libtorch's options, is that of the version.
void check_versions() {
  const NcclVersions found{.header = NCCL_VERSION_CODE,
                           .libtorch = code_of(torch::cuda::nccl::version()),
                           .library = library_version()};
  if (const auto error = version_error(found)) throw train::TrainError("backend 'nccl': " + *error);
}

}  // namespace
}  // namespace torchbridge::nccl

extern "C" __attribute__((visibility("default"))) void torchbridge_fill_backend_entry_4(
    torchbridge::train::BackendEntry& entry) {
  torchbridge::nccl::check_versions();
  entry = {{"cuda"},
           torchbridge::nccl::make,
           torchbridge::nccl::stay_out,
           torchbridge::nccl::flight_record,
           torchbridge::nccl::exclusive_gpu};
}
