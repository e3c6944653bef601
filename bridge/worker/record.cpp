#include "bridge/worker/record.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <typeinfo>

#include "bridge/worker/fatal_signals.h"
#include "bridge/worker/recorded_failure.h"
#include "bridge/worker/stack_text.h"
#include "bridge/worker/write_error_file.h"

namespace torchbridge {
namespace {

std::terminate_handler terminate_before = nullptr;

// "TYPE: TEXT" of the exception for which std::terminate is called.
std::string describe_current_exception() {
  const std::exception_ptr exception = std::current_exception();
  if (!exception) return "std::terminate was called without an exception";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return demangled(typeid(error).name()) + ": " + error.what();
  } catch (const std::string& text) {
    return "std::string: " + text;
  } catch (const char* text) {
    return std::string("const char*: ") + text;
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return type != nullptr ? demangled(type->name()) : "an exception of another language";
  }
}

void write_claimed(const std::string& message, const std::string& callstack) {
  const Status written = write_error_file(recorded_path(), message, callstack);
  if (!written) {
    const std::string line =
        std::string(program_invocation_short_name) + ": " + written.error().message + "\n";
    [[maybe_unused]] const auto printed = write(STDERR_FILENO, line.data(), line.size());
  }
  end_claim();
}

[[noreturn]] void handle_terminate() {
  if (claim_failure()) {
    const std::string message = describe_current_exception();
    write_claimed(message, message + "\n" + stack_text());
  }
  if (terminate_before != nullptr) terminate_before();
  std::abort();
}

}  // namespace

int record(const std::function<int()>& body) {
  const char* error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  record_failures(error_file != nullptr ? error_file : "");
  return body();
}

void record_failures(const std::string& error_file) {
  if (error_file.empty()) return;
  start_recording(error_file);
  report_fatal_signals();
  if (std::get_terminate() != handle_terminate)
    terminate_before = std::set_terminate(handle_terminate);
}

void record_error(const std::string& message, const std::string& callstack) {
  if (claim_failure()) write_claimed(message, callstack);
}

}  // namespace torchbridge
