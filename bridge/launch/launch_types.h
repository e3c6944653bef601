// A launch: the facts that a process has of its job, and the settings that it gave.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launch_options.h"
#include "bridge/core/torch_env.h"
#include "bridge/launch/publish_store.h"
#include "bridge/net/socket.h"
#include "bridge/step/step_plan.h"

namespace torchbridge {

struct Launch {
  TorchEnv env;
  // On rank 0, where this process selected the port: bound to env.master, for the store to accept
  // on, so that no other program can take the port. Or the socket of TORCHBRIDGE_LISTEN_FD. Else
  // not open.
  Socket store_socket;
  // The source of the facts, for messages: "environment" where RANK and the related variables are
  // set; a name of the table in core/launcher.cpp; or "none" for a single process without a
  // launcher.
  std::string launcher = "none";
  // The whole job, from the launcher's facts and those that the ranks exchanged. Nothing where
  // `launcher` is "environment".
  std::optional<StepPlan> plan;
  // The launcher's facts where `launcher` is "environment" and the rank and world size are the
  // launcher's too: for messages.
  std::optional<LaunchFacts> matching_facts;
  // The user alone says which process is rank 0, so that others may reach its node by an address
  // that it does not have.
  bool is_by_hand = false;
  // False by hand without LOCAL_WORLD_SIZE: the layout is one node, and there may be others.
  bool is_local_size_known = true;
  // By hand, MASTER_ADDR is a name, and LOCAL_WORLD_SIZE is less than WORLD_SIZE, or not known in a
  // pod: ranks of other nodes may have another MASTER_ADDR than rank 0, which Kubeflow gives
  // localhost.
  bool may_have_other_nodes = false;
  // For the user; or empty. On rank 0, which variables are empty (core/exported_values.h); where
  // `launcher` is "none", a sign of other ranks (core/other_ranks.h).
  std::string note;
  // Variables without which MPI_Init fails in a program that this process becomes by exec. They are
  // set in this process's own environment; callers that compose another environment add them.
  std::vector<Variable> mpi_variables;
};

struct LaunchSettings {
  LaunchOptions options;  // addr, port and ranks are used
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  StoreSocket store_socket = StoreSocket::kListening;
  bool shares_token = false;  // plan->token is one of the ranks, where they can have one
};

}  // namespace torchbridge
