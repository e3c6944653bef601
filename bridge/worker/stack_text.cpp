#include "bridge/worker/stack_text.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace torchbridge {
namespace {

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

}  // namespace

std::string demangled(const char* symbol) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : symbol;
}

std::string stack_text() {
  constexpr int kMaxFrames = 128;
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  std::string text;
  for (int i = count_of_runtime(frames, count); i < count; ++i)
    text += line_of(StackFrame(frames[i]));
  return text;
}

}  // namespace torchbridge
