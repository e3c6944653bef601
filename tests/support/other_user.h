// Another user of the machine, who takes names of this one. Needs root.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bridge/net/socket.h"

// A process that has done something and stays until the object goes.
class Child {
 public:
  explicit Child(const std::function<bool()>& act) {
    int done[2];
    if (pipe(done) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      if (!act()) _exit(1);
      close(done[0]);
      (void)!write(done[1], "", 1);
      for (;;) pause();
    }
    close(done[1]);
    char byte = 0;
    EXPECT_EQ(read(done[0], &byte, 1), 1) << "the child has failed";
    close(done[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

  int id() const { return pid_; }

 private:
  pid_t pid_;
};

// Takes the first `count` names of a key that are free, of this user, and becomes another user, who
// then has them.
inline bool take_as_nobody(const std::string& key, int count, bool listens) {
  constexpr uid_t kNobody = 65534;
  std::vector<sockaddr_un> names(count);
  std::vector<socklen_t> sizes(count, sizeof(sockaddr_un));
  {
    std::vector<torchbridge::Socket> sockets;
    for (int i = 0; i < count; ++i) {
      auto socket = torchbridge::listen_on_name(key);
      if (!socket) return false;
      getsockname(socket->descriptor(), reinterpret_cast<sockaddr*>(&names[i]), &sizes[i]);
      sockets.push_back(std::move(*socket));
    }
  }
  if (setuid(kNobody) != 0) return false;
  for (int i = 0; i < count; ++i) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(socket, reinterpret_cast<const sockaddr*>(&names[i]), sizes[i]) != 0) return false;
    if (listens && listen(socket, 1) != 0) return false;
  }
  return true;
}
