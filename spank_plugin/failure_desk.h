// Where the nodes of a step tell srun of their failed tasks.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>
#include <torchbridge/net/socket.h>

namespace torchbridge {

// How a node finds the desk. srun gives it to the tasks in a variable whose name starts with SLURM_, as --export=NONE lets
// only those pass; Slurm itself tells the address of srun's host.
struct DeskAddress {
  static constexpr const char* kVariable = "SLURM_TORCH_ENV_DESK";  // "PORT TOKEN"

  std::string host;  // numeric
  int port = 0;
  std::string token;

  // Nothing where srun has no desk.
  static std::optional<DeskAddress> from(const EnvMap& environment);
};

// srun's side: a listening socket that nobody waits at. The kernel keeps what the nodes say until
// srun ends and reads it; there is no thread.
class FailureDesk {
 public:
  // Listens on all addresses of this host, for only Slurm knows by which one the nodes reach it. Who does not know the token,
  // 128 random bits, is not listened to.
  static Result<FailureDesk> open();

  // For DeskAddress::kVariable.
  std::string variable() const;
  // The text of the earliest failure by the nodes' clocks, of those that were told, or nothing where none was. Waits for nobody.
  std::optional<std::string> first_report() const;

 private:
  Socket listener_;
  int port_ = 0;
  std::string token_;
};

// A node's side: what failed, and when. Waits at most a second for the connection.
Status tell_desk(const DeskAddress& desk, std::chrono::system_clock::time_point time, const std::string& text);

}  // namespace torchbridge
