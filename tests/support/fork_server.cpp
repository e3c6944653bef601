#include "tests/support/fork_server.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/fork_server_protocol.h"
#include "tests/support/paths.h"
#include "tests/support/pointers_to.h"

namespace fork_server {
namespace {

using Words = std::vector<std::string>;

// Whether the dynamic linker, libgomp or libtorch may read it before main().
bool is_read_while_loading(std::string_view variable) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"LD_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "MKL_",
                                              "KMP_", "TORCH_", "PYTORCH_", "GLOG_"},
      [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

// The end of a socket pair whose other end a new server reads; -1 where it cannot be started.
int start_server(const std::string& program, Words environment) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  // A descendant of this process becomes its child when the parent between them ends.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  environment.push_back("LD_PRELOAD=" + in_build("tests/programs/libfork_server.so"));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kForkServerSocket);
  pid_t server = -1;
  const Words command = {program};
  const int error = posix_spawn(&server, program.c_str(), &actions, nullptr,
                                pointers_to(command).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error == 0) return ends[0];
  close(ends[0]);
  return -1;
}

std::string to_packet(const std::filesystem::path& output, const Words& command,
                      const Words& environment) {
  Words words = {output.string() + ".out", output.string() + ".err",
                 std::to_string(command.size())};
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), environment.begin(), environment.end());
  std::string packet;
  for (const std::string& word : words) packet.append(word).push_back('\0');
  return packet;
}

}  // namespace

pid_t start(const Words& command, const Words& environment, const std::filesystem::path& output) {
  if (!command[0].starts_with(in_build(""))) return -1;
  if (std::ranges::any_of(environment,
                          [](const auto& variable) { return variable.starts_with("LD_PRELOAD="); }))
    return -1;
  static std::map<Words, int> servers;
  Words key = {command[0]};
  std::ranges::copy_if(environment, std::back_inserter(key), is_read_while_loading);
  auto server = servers.find(key);
  if (server == servers.end())
    server = servers.emplace(key, start_server(command[0], environment)).first;
  const std::string packet = to_packet(output, command, environment);
  pid_t process = -1;
  if (packet.size() > kForkServerPacketMax ||
      send(server->second, packet.data(), packet.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(packet.size()) ||
      recv(server->second, &process, sizeof process, 0) != sizeof process || process < 0)
    ADD_FAILURE() << "the fork server of " << command[0] << " did not start a process";
  return process;
}

}  // namespace fork_server
