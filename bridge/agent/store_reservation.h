// The port on which rank 0 of an attempt serves the store.
#pragma once

#include <string>

#include "bridge/base/result.h"
#include "bridge/core/endpoint.h"
#include "bridge/net/socket.h"

namespace torchbridge {

struct StoreReservation {
  Socket socket;     // bound, not listening
  Endpoint address;  // numeric
};

// A port of its own for each attempt, so that none finds the store of another: `port`, or a free
// one where it is 0. An error names `option` where `host`, its value, is no address of this host,
// and --master-port where the port is in use. `own` is as in reserve().
Result<StoreReservation> reserve_store(const std::string& host, int port, const std::string& option,
                                       int own = -1);

}  // namespace torchbridge
