// A launch: what a process has learned of its job, and what it asked for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/torch_env.h"
#include "bridge/launch/rendezvous.h"
#include "bridge/net/socket.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

struct Launch {
  TorchEnv env;
  // On rank 0, where the port was chosen here and not given to us: bound to env.master, for the store to accept on, so
  // that nobody else can take the port. Or the socket that TORCHBRIDGE_LISTEN_FD named. Not open otherwise.
  Socket store_socket;
  // Who told us, for messages: "environment" where RANK and its companions were set, by whomever; a name of the table
  // in core/launcher.cpp; or "none" for a single process that nobody launched.
  std::string launcher = "none";
  // What the launcher told, completed by what the ranks told each other: the whole job. Nothing where the launcher is
  // "environment".
  std::optional<StepPlan> plan;
  // What the launcher says where the environment was taken at its word and counts the ranks as the launcher does: for
  // messages.
  std::optional<LaunchFacts> facts_beside;
  // To be set in the environment of a program that this process becomes by exec, or MPI_Init fails there. They are set
  // in this process's own environment already; this is for those who compose another.
  std::vector<Variable> keep_for_mpi;
};

struct LaunchSettings {
  LaunchOptions options;  // addr, port and ranks are used
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  StoreSocket store_socket = StoreSocket::kListening;
};

}  // namespace torchbridge
