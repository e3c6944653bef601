#include "tests/support/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "bridge/base/env_map.h"
#include "tests/support/fork_server.h"
#include "tests/support/pointers_to.h"
#include "tests/support/process_state.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{5};

// What would change the outcome when the tests themselves run inside a job.
bool is_about_a_job(std::string_view name) {
  for (const char* prefix : {"SLURM", "OMPI", "PMIX", "PMI", "TORCH", "RANK", "WORLD_SIZE",
                             "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "OMP_", "GLOO_", "PRTE"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Process::Process(const Words& command, const Variables& variables,
                 const std::filesystem::path& output)
    : output_(output) {
  Words environment;
  for (const auto& [name, value] : torchbridge::EnvMap::from(environ)) {
    if (!is_about_a_job(name) && !variables.contains(name))
      environment.push_back(name + "=" + value);
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
#ifdef FORK_SERVER
  pid_ = fork_server::start(command, environment, output_);
  if (pid_ > 0) return;
#endif
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, (output_.string() + ".out").c_str(),
                                   O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, (output_.string() + ".err").c_str(),
                                   O_WRONLY | O_CREAT, 0600);
  const int error = posix_spawn(&pid_, command[0].c_str(), &actions, nullptr,
                                pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    ADD_FAILURE() << "cannot start " << command[0] << ": " << strerror(error);
    pid_ = -1;
  }
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), code_(other.code_), output_(std::move(other.output_)) {}

Process::~Process() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

bool Process::ended() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return pid_ < 0;
}

bool Process::stopped() const { return process_state(pid_) == 'T'; }
bool Process::catches(int signal) const { return catches_signal(pid_, signal); }

int Process::wait(std::chrono::milliseconds time) {
  if (!eventually([this] { return ended(); }, time)) {
    signal(SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
    code_ = -1;
  }
  return code_;
}

std::string Process::out() const { return read_file(output_.string() + ".out"); }
std::string Process::error() const { return read_file(output_.string() + ".err"); }

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool eventually(const std::function<bool()>& fact, std::chrono::milliseconds time) {
  Clock::duration left = time;
  auto last = Clock::now();
  while (!fact()) {
    if (left <= Clock::duration::zero()) return false;
    std::this_thread::sleep_for(kPoll);
    const auto now = Clock::now();
    // At most three periods each, so that a machine that stands still does not fail a test.
    left -= std::min<Clock::duration>(now - last, 3 * kPoll);
    last = now;
  }
  return true;
}
