#include "bridge/worker/fatal_signals.h"

#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <ctime>
#include <iterator>
#include <string_view>

#include "bridge/worker/error_json.h"
#include "bridge/worker/recorded_failure.h"
#include "bridge/worker/write_error_file.h"

namespace torchbridge {
namespace {

struct FatalSignal {
  int number;
  std::string_view text;
  bool has_address;  // of the fault
};

constexpr FatalSignal kFatalSignals[] = {
    {SIGSEGV, "SIGSEGV: Segmentation fault", true},
    {SIGBUS, "SIGBUS: Bus error", true},
    {SIGFPE, "SIGFPE: Floating point exception", true},
    {SIGILL, "SIGILL: Illegal instruction", true},
    {SIGABRT, "SIGABRT: Aborted", false},
};
constexpr std::size_t kMaxMessage = 256, kHandlerStack = 128 << 10;

// Text of a fixed size; what does not fit is left out.
class ReportText {
 public:
  void clear() { size_ = 0; }
  std::string_view view() const { return {text_, size_}; }
  void add(std::string_view part) { size_ += part.copy(text_ + size_, sizeof text_ - size_); }
  void add_number(unsigned long number, int base) {
    char digits[24];
    add({digits, static_cast<std::size_t>(
                     std::to_chars(digits, std::end(digits), number, base).ptr - digits)});
  }
  void add_from(int file) {
    const ssize_t count = read(file, text_ + size_, sizeof text_ - size_);
    if (count > 0) size_ += static_cast<std::size_t>(count);
  }

  static constexpr std::size_t kCapacity = 64 << 10;

 private:
  char text_[kCapacity];
  std::size_t size_;
};

// All that a handler needs, as it may not allocate. One handler at a time writes here
// (claim_failure).
struct FatalHandlerState {
  bool is_installed;
  bool has_symbols;
  int symbols[2];  // a pipe for backtrace_symbols_fd; a file, also in memory, has a limit
                   // (RLIMIT_FSIZE)
  struct sigaction before[std::size(kFatalSignals)];
  ReportText text;
  char json[error_json_bound(ReportText::kCapacity + kMaxMessage)];
  alignas(16) char handler_stack[kHandlerStack];
};
FatalHandlerState prepared;  // zeros, which take no space in the program's file

std::size_t index_of(int number) {
  const auto found = std::ranges::find(kFatalSignals, number, &FatalSignal::number);
  return static_cast<std::size_t>(found - std::begin(kFatalSignals));
}

void put_message(ReportText& text, const siginfo_t& info) {
  const FatalSignal& signal = kFatalSignals[index_of(info.si_signo)];
  text.add(signal.text);
  // SI_KERNEL: a fault for which the processor gives no address.
  if (signal.has_address && info.si_code > 0 && info.si_code != SI_KERNEL) {
    text.add(" at address 0x");
    text.add_number(reinterpret_cast<unsigned long>(info.si_addr), 16);
  } else if (info.si_code <= 0 && info.si_pid != getpid()) {
    text.add(", sent by process ");
    text.add_number(static_cast<unsigned long>(info.si_pid), 10);
  }
}

// A frame at a time, so that the pipe never is full. A function that calls itself is one line.
void put_frames(ReportText& text) {
  constexpr int kMaxFrames = 128;
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  for (int i = 0; i < count;) {
    backtrace_symbols_fd(&frames[i], 1, prepared.symbols[1]);
    text.add_from(prepared.symbols[0]);
    int same = 1;
    while (i + same < count && frames[i + same] == frames[i]) ++same;
    if (same > 1) {
      text.add("  (");
      text.add_number(static_cast<unsigned long>(same), 10);
      text.add(same == count - i ? " times or more)\n" : " times)\n");
    }
    i += same;
  }
}

int write_report(std::string_view message, std::string_view callstack) {
  const std::size_t size = put_error_json(message, callstack, std::time(nullptr), prepared.json);
  return write_file_bytes(recorded_path(), {prepared.json, size});
}

void write_signal(const siginfo_t& info) {
  ReportText& text = prepared.text;
  text.clear();
  put_message(text, info);
  const std::size_t message_size = text.view().size();
  const auto message = [&] { return text.view().substr(0, message_size); };
  // First without the stack: it may be what is broken.
  if (const int error = write_report(message(), message()); error != 0) {
    return print_unwritten(recorded_path(), error);
  }
  if (!prepared.has_symbols) return;
  text.add("\n");
  put_frames(text);
  if (write_report(message(), text.view()) != 0) write_report(message(), message());
}

void end_as_before(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = prepared.before[index_of(number)];
  if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    sigaction(number, &before, nullptr);
    raise(number);  // it is blocked here: it comes when this handler has returned
  } else if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else {
    before.sa_handler(number);
  }
}

void handle_fatal_signal(int number, siginfo_t* info, void* context) {
  if (claim_failure()) {
    write_signal(*info);
    end_claim();
  }
  end_as_before(number, info, context);
}

// Once, as the first call of backtrace loads a library.
void prepare_backtrace() {
  void* frame = nullptr;
  backtrace(&frame, 1);
  prepared.has_symbols = pipe2(prepared.symbols, O_CLOEXEC | O_NONBLOCK) == 0;
}

// A sanitizer's, or the program's own, stays.
void prepare_handler_stack() {
  stack_t stack{};
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  stack = {
      .ss_sp = prepared.handler_stack, .ss_flags = 0, .ss_size = sizeof prepared.handler_stack};
  sigaltstack(&stack, nullptr);
}

void install_handlers() {
  struct sigaction action {};
  action.sa_sigaction = handle_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const FatalSignal& signal : kFatalSignals) sigaddset(&action.sa_mask, signal.number);
  sigaddset(&action.sa_mask, SIGXFSZ);  // from writing the error file
  for (std::size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i].number, &action, &prepared.before[i]);
  }
}

}  // namespace

void report_fatal_signals() {
  prepare_handler_stack();
  if (prepared.is_installed) return;
  prepare_backtrace();
  install_handlers();
  prepared.is_installed = true;
}

}  // namespace torchbridge
