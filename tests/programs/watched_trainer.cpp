// The trainer, which prints beside its own output what scripts/gpu_check asks of its steps: a line
// "sync FUNCTION" for each call in steps 12 to 21 by which the host waits for the GPU, as
// libtorch's sync debug mode sees them, with the stack on stderr; a line "steps N" of those steps;
// and "peak_bytes N" of the GPU's memory that libtorch gave out at once, on the CPU of the process.
#include <dlfcn.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Backtrace.h>
#include <torchbridge/training.h>

#include "trainer_template/runtime/backends/cuda.h"

using namespace torchbridge::train;

// The linker gives these to the page (--wrap).
std::optional<TrainingStep> next_step(Session*) asm("__real_" NEXT_STEP);
std::optional<TrainingStep> watch_and_step(Session*) asm("__wrap_" NEXT_STEP);

namespace {

constexpr int kFirst = 12, kLast = 21;  // the first ones allocate, and lay out buckets

// The innermost function of ours in the stack.
std::string caller(const std::string& stack) {
  std::istringstream lines(stack);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find("torchbridge::");
    if (begin != std::string::npos) return line.substr(begin, line.find('(', begin) - begin);
  }
  return "another function";
}

class PrintedWaits : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") == std::string::npos)
      return c10::WarningHandler::process(warning);
    ++count;
    if (is_check) return;
    const std::string stack = c10::get_backtrace();
    std::fprintf(stderr, "%s\n", stack.c_str());
    std::printf("sync %s\n", caller(stack).c_str());
  }
  int count = 0;
  bool is_check = false;
};

PrintedWaits waits;

void watch(c10::cuda::SyncDebugMode mode) { c10::cuda::warning_state().set_sync_debug_mode(mode); }

// The mode is a variable of libc10_cuda, which the program shares if both export it. A warning of
// another thread goes to stderr: scripts/gpu_check counts those there.
void check_that_waits_are_seen() {
  auto* const wait =
      reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_ZN3c104cuda21warn_or_error_on_syncEv"));
  waits.is_check = true;
  if (wait != nullptr) wait(), std::thread(wait).join();
  waits.is_check = false;
  if (waits.count == 1) return;
  std::fprintf(stderr, "watched_trainer: libtorch's sync debug mode has no effect\n");
  std::exit(1);
}

std::int64_t peak_bytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  if (!at::hasCUDA()) return used.ru_maxrss * 1024;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(0).allocated_bytes[kAll].peak;
}

}  // namespace

std::optional<TrainingStep> watch_and_step(Session* session) {
  static int number = 0;
  auto step = next_step(session);
  if (!step) std::printf("peak_bytes %lld\n", static_cast<long long>(peak_bytes()));
  if (!step) return step;
  ++number;
  if (number == kFirst) {
    open_cuda();  // on the CPU too, where nothing waits for a GPU
    c10::WarningUtils::set_warning_handler(&waits);
    watch(c10::cuda::SyncDebugMode::L_WARN);
    check_that_waits_are_seen();
  }
  if (number == kLast + 1) {
    watch(c10::cuda::SyncDebugMode::L_DISABLED);
    std::printf("steps %d\n", kLast + 1 - kFirst);
  }
  return step;
}
