// Fails in the way that its argument names, under torchbridge::record.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

#include <torchbridge/record.h>

namespace {

volatile int deepest = -1;  // the compiler does not know that it is never reached
volatile std::uintptr_t unmapped = 16;

int call_forever(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == deepest ? 0 : call_forever(depth + 1) + frame[0];
}

}  // namespace

// Not of the namespace without a name, so that their names are in a backtrace.
[[noreturn, gnu::noinline]] void throw_error(const std::string& text) {
  throw std::runtime_error(text);
}

[[gnu::noinline]] int fail(const std::string& how) {
  if (how == "throw") throw_error("no data in \"földer\"\nsecond line");
  if (how == "throw-bytes") throw_error("not UTF-8: \xff, and an escape: \x1b[31m");
  if (how == "segfault") return *reinterpret_cast<volatile int*>(unmapped);
  if (how == "overflow") return call_forever(0);
  if (how == "abort") std::abort();
  if (how == "divide") return raise(SIGFPE);
  if (how == "exit") return 3;
  std::cerr << "record_cases: '" << how << "': expected a way to fail\n";
  return 2;
}

int main(int argc, char** argv) {
  return torchbridge::record([&] { return fail(argc > 1 ? argv[1] : ""); });
}
