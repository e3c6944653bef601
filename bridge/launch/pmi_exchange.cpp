#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bridge/base/hex_text.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/bootstrap/missing_ranks.h"
#include "bridge/host/process_tree.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/launch/pmi_proxy.h"

namespace torchbridge {
namespace {

using Clock = std::chrono::steady_clock;

// Values go as hexadecimal digits: blanks and line ends separate words and commands.
std::string bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}

// The value of "name=value" among the words of a line; empty where it is not there.
std::string_view field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const auto part = take_until(line, ' ');
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=')
      return part.substr(name.size() + 1);
  }
  return {};
}

// One line to the launcher, one line back. Nothing else uses the descriptor meanwhile. MPI_Init
// sends `cmd=init` again, which Hydra allows, but not after `cmd=finalize`.
class PmiExchange : public Exchange {
 public:
  PmiExchange(int descriptor, int rank, int world_size)
      : descriptor_(descriptor), rank_(rank), world_size_(world_size) {}
  ~PmiExchange() override { start_pmi_proxy(descriptor_); }

  Status start() {
    deadline_ = Clock::now() + std::chrono::seconds(10);
    const auto init = ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    if (!init) return init.error();
    if (field(*init, "rc") != "0")
      return Error{formatted("PMI: the launcher does not support PMI version 1: it answered '{}'",
                             printable(*init))};
    const auto name = ask("cmd=get_my_kvsname", "my_kvsname");
    if (!name) return name.error();
    space_ = field(*name, "kvsname");
    if (space_.empty())
      return Error{formatted("PMI: no key-value space in the answer '{}'", printable(*name))};
    return Ok{};
  }

  Result<std::vector<std::string>> all_gather(const std::string& value,
                                              std::chrono::milliseconds timeout) override {
    deadline_ = Clock::now() + timeout;
    // A key cannot be written twice, and a program that this process becomes by exec may run this
    // exchange again.
    for (;; ++round_) {
      const auto taken = get(rank_);
      if (!taken) return taken.error();
      if (taken->empty()) break;
    }
    const auto put =
        ask("cmd=put kvsname=" + space_ + " key=" + key(rank_) + " value=" + hex_of(value),
            "put_result");
    if (!put) return put.error();
    if (field(*put, "rc") != "0") return Error{formatted("PMI: put failed: '{}'", printable(*put))};
    if (const auto passed = ask("cmd=barrier_in", "barrier_out"); !passed) {
      return Error{
          formatted("{}; not all {} ranks arrived within {}: does every rank run this program?",
                    passed.error().message, world_size_, seconds(timeout))};
    }
    std::vector<std::string> values;
    for (int rank = 0; rank < world_size_; ++rank) {
      auto value_of_rank = get(rank);
      if (!value_of_rank) return value_of_rank.error();
      if (value_of_rank->empty())
        return Error{
            formatted("PMI: rank {} published no value: does every rank run this program?", rank)};
      values.push_back(bytes_of(*value_of_rank));
    }
    ++round_;
    return values;
  }

 private:
  std::string key(int rank) const {
    return "torchbridge-" + std::to_string(round_) + "-" + std::to_string(rank);
  }

  // Empty where the key is not there.
  Result<std::string> get(int rank) {
    const auto answer = ask("cmd=get kvsname=" + space_ + " key=" + key(rank), "get_result");
    if (!answer) return answer.error();
    return field(*answer, "rc") == "0" ? std::string(field(*answer, "value")) : std::string();
  }

  Result<std::string> ask(const std::string& command, std::string_view expected) {
    const std::string line = command + "\n";
    if (send(descriptor_, line.data(), line.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(line.size())) {
      return Error{std::string("PMI: cannot write to PMI_FD: ") + std::strerror(errno)};
    }
    auto answer = read_line();
    if (answer && field(*answer, "cmd") != expected) {
      return Error{formatted("PMI: the launcher answered '{}' to '{}'", printable(*answer),
                             printable(command))};
    }
    return answer;
  }

  Result<std::string> read_line() {
    constexpr std::size_t kLongest = 64 * 1024;
    std::string line;
    while (line.size() < kLongest) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd ready{descriptor_, POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count() + 1, 0))) == 0)
        return Error{"PMI: the launcher did not answer"};
      char buffer[4096];
      const auto size = read(descriptor_, buffer, sizeof buffer);
      if (size <= 0) {
        return Error{
            "PMI: the launcher closed the connection: did this rank run another PMI program "
            "before?"};
      }
      line.append(buffer, static_cast<std::size_t>(size));
      if (line.back() == '\n') {  // the launcher only answers, so nothing follows the line
        line.pop_back();
        return line;
      }
    }
    return Error{"PMI: an answer of the launcher is too long"};
  }

  int descriptor_;
  int rank_, world_size_;
  std::string space_;
  int round_ = 0;
  Clock::time_point deadline_;
};

bool is_socket(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

}  // namespace

std::string key_of_pmi(const EnvMap& environment) {
  const auto descriptor = environment.integer("PMI_FD", 0, INT32_MAX);
  if (!descriptor || !*descriptor) return {};
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(static_cast<int>(**descriptor), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.pid <= 0)
    return {};
  // With its start a pid names one process for good.
  const std::int64_t start = start_ticks(peer.pid);
  return start == 0 ? "" : formatted("pmi {} {}", peer.pid, start);
}

Result<std::unique_ptr<Exchange>> connect_pmi(const EnvMap& environment, int rank, int world_size) {
  const auto descriptor = environment.required_integer("PMI_FD", 0, INT32_MAX);
  if (!descriptor) return descriptor.error();
  if (!is_socket(static_cast<int>(*descriptor))) {
    return Error{formatted(
        "PMI_FD='{}' is not an open socket: was it closed between mpiexec and this program (by "
        "sudo or a container), or is the variable inherited from an outer job?",
        *descriptor)};
  }
  auto exchange = std::make_unique<PmiExchange>(static_cast<int>(*descriptor), rank, world_size);
  if (const auto started = exchange->start(); !started) return started.error();
  return std::unique_ptr<Exchange>(std::move(exchange));
}

}  // namespace torchbridge
