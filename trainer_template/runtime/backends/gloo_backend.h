// The backend gloo: TCP connections between CPUs, and memory that the ranks of one node share.
#pragma once

#include <torchbridge/backend.h>

namespace torchbridge::train {

// Throws TrainError where the program or GLOO_SOCKET_IFNAME names an interface that cannot be used.
// Before the ranks have joined: else a peer's connection fails first.
void check_gloo_interfaces(const GlooOptions& options, bool several_nodes);

// An entry of the table. Throws TrainError for an unknown interface.
MadeBackend make_gloo(const BackendRequest& request);

// Whether it is gloo and its small collectives go over shared memory.
bool shares_memory(const c10d::Backend& backend);

}  // namespace torchbridge::train
