#include "bridge/worker/record.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <typeinfo>

#include "bridge/worker/fatal_signals.h"
#include "bridge/worker/recorded_failure.h"
#include "bridge/worker/write_error_file.h"

namespace torchbridge {
namespace {

std::terminate_handler terminate_before = nullptr;

// The C++ name of a symbol or a type; another text as it is.
std::string demangled(const char* symbol) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : symbol;
}

// Of a return address. The function is that of the call before it: a call that never returns may be
// the last instruction of its function. backtrace_symbols takes the address itself, and names no
// function then, or the next one.
struct StackFrame {
  explicit StackFrame(void* address) : pc(reinterpret_cast<std::uintptr_t>(address)) {
    is_known = dladdr(reinterpret_cast<void*>(pc - 1), &info) != 0;
  }
  bool is_of(std::string_view function) const {
    return is_known && info.dli_sname != nullptr && info.dli_sname == function;
  }

  std::uintptr_t pc;
  bool is_known;
  Dl_info info{};
};

// "program(train()+0x1a) [0x55d0c0de]", or "program(+0x31a) [0x55d0c0de]", whose number addr2line
// takes.
std::string line_of(const StackFrame& frame) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%lx]\n", static_cast<unsigned long>(frame.pc));
  if (!frame.is_known) return text;
  const bool is_named = frame.info.dli_sname != nullptr;
  const void* base = is_named ? frame.info.dli_saddr : frame.info.dli_fbase;
  const std::string function = is_named ? demangled(frame.info.dli_sname) : "";
  std::snprintf(text, sizeof text, "+0x%lx) [0x%lx]\n",
                static_cast<unsigned long>(frame.pc - reinterpret_cast<std::uintptr_t>(base)),
                static_cast<unsigned long>(frame.pc));
  return std::string(frame.info.dli_fname) + "(" + function + text;
}

// How many frames are those of the runtime that handles an exception, or ends the process.
int count_of_runtime(void* const* frames, int count) {
  constexpr std::string_view kThrow[] = {"__cxa_throw", "__cxa_rethrow"};
  constexpr std::string_view kTerminate = "_ZSt9terminatev";
  int terminates = 0;
  for (int i = 0; i < count; ++i) {
    const StackFrame frame(frames[i]);
    if (std::ranges::any_of(kThrow,
                            [&](std::string_view function) { return frame.is_of(function); }))
      return i + 1;
    if (frame.is_of(kTerminate)) terminates = i + 1;
  }
  return terminates;
}

// glibc's backtrace with C++ names, innermost first, a line for each frame; at most 128. Without
// the frames of the runtime above the one that throws an exception, or that calls std::terminate.
// Names of a program's own functions are there where it is linked with -rdynamic. May be empty.
std::string stack_text() {
  constexpr int kMaxFrames = 128;
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  std::string text;
  for (int i = count_of_runtime(frames, count); i < count; ++i)
    text += line_of(StackFrame(frames[i]));
  return text;
}

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
