#include "trainer_template/runtime/run/uncaught.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>

#include <c10/util/Exception.h>
#include <torchbridge/errors.h>
#include <torchbridge/process_group.h>

#include "trainer_template/runtime/base/console.h"

namespace torchbridge::train {
namespace {

std::atomic<int> own_rank{0};
std::atomic<ProcessGroup*> own_group{nullptr};
std::atomic<bool> is_failure_reported{false};

[[noreturn]] void print_and_abort() {
  std::string text = "std::terminate was called without an exception";
  try {
    if (const std::exception_ptr exception = std::current_exception())
      std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    // Of a destructor, after the error that they follow from.
    const bool is_of_group = dynamic_cast<const c10::AcceleratorError*>(&error) ||
                             dynamic_cast<const c10::DistError*>(&error);
    if (is_of_group && is_failure_reported) _exit(static_cast<int>(ExitCode::kFailed));
    ProcessGroup* const group = own_group;
    if (is_of_group && group) group->report_and_exit(error);
    text = one_line(error);
  } catch (...) {
    text = "an exception of another type than std::exception";
  }
  print_error(own_rank, text);
  std::abort();
}

}  // namespace

void print_uncaught(int rank) {
  own_rank = rank;
  is_failure_reported = false;
  std::set_terminate(print_and_abort);
}

void report_group_errors_by(ProcessGroup* group) { own_group = group; }

void report_no_group_errors() { is_failure_reported = true; }

}  // namespace torchbridge::train
