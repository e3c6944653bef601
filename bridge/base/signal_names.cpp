#include "bridge/base/signal_names.h"

#include <csignal>
#include <cstring>

#include "bridge/base/message_text.h"

namespace torchbridge {
namespace {

struct SignalName {
  int number;
  std::string_view name;
};
constexpr SignalName kNames[] = {
    {SIGHUP, "HUP"},       {SIGINT, "INT"},   {SIGQUIT, "QUIT"},    {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"},     {SIGABRT, "ABRT"}, {SIGFPE, "FPE"},      {SIGKILL, "KILL"},
    {SIGBUS, "BUS"},       {SIGSYS, "SYS"},   {SIGSEGV, "SEGV"},    {SIGPIPE, "PIPE"},
    {SIGALRM, "ALRM"},     {SIGTERM, "TERM"}, {SIGURG, "URG"},      {SIGSTOP, "STOP"},
    {SIGTSTP, "TSTP"},     {SIGCONT, "CONT"}, {SIGCHLD, "CHLD"},    {SIGTTIN, "TTIN"},
    {SIGTTOU, "TTOU"},     {SIGPOLL, "POLL"}, {SIGXFSZ, "XFSZ"},    {SIGXCPU, "XCPU"},
    {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGUSR1, "USR1"},    {SIGUSR2, "USR2"},
    {SIGWINCH, "WINCH"},   {SIGPWR, "PWR"},   {SIGSTKFLT, "STKFLT"}};

}  // namespace

std::string_view signal_abbreviation(int signal) {
  for (const SignalName& each : kNames) {
    if (each.number == signal) return each.name;
  }
  return {};
}

std::string signal_text(int signal) {
  return formatted("signal {} ({})", signal, strsignal(signal));
}

}  // namespace torchbridge
