// An all-gather among the ranks of one job before anything else connects them: two levels, a tree
// of depth two.
//
// The first rank of each node listens on an abstract unix socket for the other ranks of its node,
// and connects over TCP to the nodes that listen. The first listener that has the values of all
// ranks sends them to everybody. No launcher takes part and no file is made.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bridge/base/result.h"

namespace torchbridge {

// The members, and where this process finds the others. Every message over TCP carries a proof made
// with `secret`, which itself is never sent: other users, who may take one of the ports or connect
// to it, are neither believed nor answered. Who can read the network still reads the values, as
// with PyTorch's store. A proof holds for one job and one kind of message, so replaying it reveals
// nothing. On a node only processes of this user are accepted.
struct BootstrapGroup {
  std::string job;     // the same for all ranks, and for no other all-gather on the same hosts and
                       // ports; no newline
  std::string secret;  // known to this job's processes alone: see group_secret
  int rank = 0, size = 1;

  // The ranks of a node: local rank 0 listens, at a name that only who has the secret can compute.
  // Without a secret another user who knows the key can take that name, and hold up these ranks
  // until the timeout.
  // `node_key` is the same for all of them and different elsewhere.
  std::string node_key;
  int local_rank = 0, local_size = 1;

  // Between nodes, for local rank 0. It succeeds where every other node connects to one common
  // listener.
  bool listens = false;
  // The node that has this rank listens too, and connects to no other_hosts.
  int listening_rank = -1;
  std::string listen_at;   // numeric address; empty: all interfaces
  std::vector<int> ports;  // the same on all nodes: a listener takes the first that is free
  std::vector<std::string> first_hosts;  // to connect to: numeric addresses or names, tried at once
  std::vector<std::string> other_hosts;  // tried one after the other, until any node has answered
  // No first host has a listener: where the names of all other hosts but this one have no address,
  // no other node can answer.
  bool needs_other_hosts = false;
  // How long to wait for an answer of any other node once this node's ranks are complete.
  std::chrono::milliseconds connect_timeout = std::chrono::hours(24);

  // The text for the ranks that did not arrive, from which ranks arrived; where empty their ranks
  // are listed.
  std::function<std::string(const std::vector<bool>& arrived)> missing{};
};

// The secret of a group whose processes share `token`, from which the token cannot be computed.
// Empty: none.
std::string group_secret(const std::string& token);

// The key of the names (net/socket.h) at which the ranks of a node find each other.
std::string name_on_node(const BootstrapGroup& group);

using Values = std::vector<std::string>;

// What the listener that has the values of all ranks makes of them before it sends the result to
// everybody. Its error is everybody's.
using Reduce = std::function<Result<Values>(Values)>;

struct Gathered {
  Values values;  // of ranks 0..size-1, or what `reduce` made of them
  // Where no other node answered within `connect_timeout`, or none can: the hosts tried, for a
  // message.
  std::string unreached;
};

// Collective: gives `value` (any bytes, at most 1000) and returns when all values are known. The
// error is everybody's, and reported_elsewhere where another rank sent it: at the timeout it names
// the ranks that did not arrive. The next all-gather may begin at once on the same hosts and ports.
// Resolves names meanwhile. A connection that fails is tried again after a pause with jitter that
// doubles up to 2 s. Not for several threads at once.
Result<Gathered> all_gather(const BootstrapGroup& group, const std::string& value,
                            std::chrono::milliseconds timeout, const Reduce& reduce = {});

}  // namespace torchbridge
