#include "bridge/start/preloaded_python.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bridge/base/message_text.h"
#include "bridge/base/signal_names.h"
#include "bridge/base/visible_text.h"

namespace torchbridge {
namespace {

// Of an interpreter that somebody kills, or whose modules change while they are imported.
constexpr int kMostEnds = 3;
constexpr std::size_t kLongestText = 1000;
// Milliseconds: for a fork; for an answer, before which it looks at its files; until Python has
// read what it reads before a script, which may be on a file system that all nodes ask at once; and
// for its end.
constexpr int kFork = 10'000, kAnswer = 30'000, kStart = 600'000, kEnd = 1000;

std::string end_text(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return formatted("ended with exit code {}", WEXITSTATUS(wait_status));
  return formatted("was killed by {}", signal_text(WTERMSIG(wait_status)));
}

PreloadedPython::Deadline after(int milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

bool is_ready(int descriptor, short events, int milliseconds) {
  pollfd entry{descriptor, events, 0};
  return poll(&entry, 1, milliseconds) > 0;
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

// Not of one in uninterruptible sleep.
void wait_for_end(pid_t process) {
  for (int i = 0; i < kEnd && !has_ended(process); ++i) poll(nullptr, 0, 1);
}

// What become_worker() of preload.py reads: CPUs, number of words of the command, the command, the
// environment, each with a null behind it. In memory, because it may be longer than a message.
Socket request_for(const ProcessSpec& spec) {
  std::string cpus;
  for (const int cpu : spec.cpus) cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu);
  std::string text = cpus + '\0' + std::to_string(spec.command.size()) + '\0';
  for (const std::string& word : spec.command) text += word + '\0';
  for (const auto& [name, value] : spec.environment) text += name + "=" + value + '\0';
  Socket file(memfd_create("request", MFD_CLOEXEC));
  const bool is_whole = file.open() && write(file.descriptor(), text.data(), text.size()) ==
                                           static_cast<ssize_t>(text.size());
  return is_whole ? std::move(file) : Socket();
}

bool send_descriptors(int channel, const std::vector<int>& descriptors) {
  char byte = 'f';
  iovec data{&byte, 1};
  const std::size_t size = descriptors.size() * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(5 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(rights), descriptors.data(), size);
  return sendmsg(channel, &message, MSG_NOSIGNAL) == 1;
}

bool is_child(pid_t process) {
  siginfo_t ignored{};
  return process > 0 &&
         waitid(P_PID, static_cast<id_t>(process), &ignored, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

PreloadedPython::PreloadedPython(std::vector<std::string> modules, ProcessSpec spec)
    : modules_(std::move(modules)), spec_(std::move(spec)) {
  run();
}

PreloadedPython::~PreloadedPython() { end(); }

void PreloadedPython::run() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return give_up(formatted("cannot open a socket: {}", std::strerror(errno)));
  channel_ = Socket(ends[0]);
  const Socket theirs(ends[1]);
  fcntl(theirs.descriptor(), F_SETFD, 0);
  ProcessSpec spec = spec_;
  const std::vector<std::string> begin = {"-S",
                                          "-c",
                                          kPreloadProgram,
                                          std::to_string(theirs.descriptor()),
                                          std::to_string(getpid()),
                                          joined(modules_, ",")};
  spec.command.insert(spec.command.begin() + 1, begin.begin(), begin.end());
  spec.inherited = theirs.descriptor();
  const auto started = start_process(spec);
  if (const auto* failure = std::get_if<StartFailure>(&started))
    return give_up(failure->error.message);
  pid_ = std::get<pid_t>(started);
  state_ = State::kIdle;
  is_serving_ = false;
  deadline_ = after(kStart);
}

// Returns how. The channel may outlive it, in what a module has started.
std::string PreloadedPython::end() {
  int status = 0;
  if (pid_ != 0) {
    if (is_ready(channel_.descriptor(), 0, 0)) wait_for_end(pid_);  // so that its status is its own
    kill(-pid_, SIGKILL);                                           // and what it has started
    wait_for_end(pid_);
    (void)waitpid(pid_, &status, WNOHANG);
  }
  channel_ = Socket();
  deadline_ = Deadline::max();
  pid_ = 0;
  return end_text(status);
}

void PreloadedPython::give_up(const std::string& reason) {
  end();
  state_ = State::kOff;
  message_ = formatted("--preload has no effect, each worker imports by itself: {}", reason);
}

void PreloadedPython::stop() {
  state_ = State::kOff;
  deadline_ = Deadline::max();
}

void PreloadedPython::ask() {
  if (state_ == State::kOff) return;
  if (pid_ == 0) run();
  if (state_ == State::kOff) return;
  state_ = State::kAsked;
  if (is_serving_) deadline_ = after(kAnswer);
  (void)send(channel_.descriptor(), "?", 1, MSG_NOSIGNAL);  // where it has ended, carry() sees it
}

void PreloadedPython::carry() {
  char bytes[4096];
  if (!channel_.open()) return;
  const bool is_gone = has_ended(pid_);  // what it started may have its end of the channel
  const auto take = [&] { return recv(channel_.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT); };
  ssize_t size = take();
  if (size < 0 && errno == ECONNRESET)
    size = take();  // it has ended without reading; what it sent is still there
  const bool is_silent = size < 0 && (errno == EAGAIN || errno == EINTR);
  if (is_silent && !is_gone && std::chrono::steady_clock::now() < deadline_) return;
  if (state_ == State::kOff) {
    if (is_gone || size == 0) end();
    return;
  }
  deadline_ = Deadline::max();
  const std::string_view answer(bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (!take_answer(answer)) begin_again(answer, is_silent && !is_gone);
}

// False where the interpreter cannot go on.
bool PreloadedPython::take_answer(std::string_view answer) {
  if (answer == "serving") {
    is_serving_ = has_served_ = true;
    if (state_ == State::kAsked)
      deadline_ = after(kAnswer);
    else
      ends_ = 0;  // an attempt may run for days
    return true;
  }
  if (answer == "ready") {
    state_ = State::kReady;
    ends_ = 0;
    return true;
  }
  return answer == "importing";
}

void PreloadedPython::begin_again(std::string_view answer, bool is_stuck) {
  const std::string text =
      visible_line(answer.substr(std::min(answer.find(' ') + 1, answer.size())), kLongestText);
  if (answer.starts_with("refused ")) return give_up(text);
  const bool is_asked = state_ == State::kAsked;
  if (answer.starts_with("changed ")) {
    end();
    has_served_ = false;
    if (is_asked && ++ends_ > kMostEnds)
      return give_up(formatted("'{}' changes at each import", text));
    message_ = formatted("--preload: '{}' has changed: imported again", text);
  } else {
    const std::string process = formatted("the interpreter (pid {}) ", pid_);
    const std::string ended = end();
    const std::string how = (is_stuck ? "does not answer" : ended) +
                            (is_serving_ ? "" : " before it has imported the modules");
    if (!has_served_ || ++ends_ > kMostEnds) return give_up(process + how);
    message_ = formatted("--preload: {}{}: started again", process, how);
  }
  run();
  if (is_asked) ask();
}

std::variant<pid_t, StartFailure> PreloadedPython::start(const ProcessSpec& spec) {
  if (state_ != State::kReady) return start_process(spec);
  if (const auto worker = fork(spec)) return *worker;
  message_ = formatted("--preload: the interpreter (pid {}) cannot be forked: ended", pid_);
  end();
  state_ = State::kIdle;
  return start_process(spec);
}

std::optional<pid_t> PreloadedPython::fork(const ProcessSpec& spec) const {
  const Socket request = request_for(spec);
  int ends[2];
  if (!request.open() || pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const Socket status(ends[0]);
  Socket theirs(ends[1]);
  const auto own = [](int descriptor, int otherwise) {
    return descriptor >= 0 ? descriptor : otherwise;
  };
  std::vector<int> descriptors = {request.descriptor(), theirs.descriptor(),
                                  own(spec.standard_output, STDOUT_FILENO),
                                  own(spec.standard_error, STDERR_FILENO)};
  if (spec.inherited >= 0) descriptors.push_back(spec.inherited);
  if (!send_descriptors(channel_.descriptor(), descriptors)) return std::nullopt;
  theirs = Socket();
  char text[16] = {};
  if (!is_ready(status.descriptor(), POLLIN, kFork) ||
      read(status.descriptor(), text, sizeof text - 1) <= 0)
    return std::nullopt;
  const pid_t worker = std::atoi(text);
  return is_child(worker) ? std::optional(worker) : std::nullopt;
}

}  // namespace torchbridge
