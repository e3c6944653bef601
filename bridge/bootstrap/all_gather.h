// The ranks of one job tell each other a value each, before anything else connects them: two
// levels, a tree of depth two.
//
// The first rank of each node listens on an abstract unix socket for the other ranks of its node,
// and calls over TCP the nodes that listen. The first listener that has heard of all ranks answers
// everybody. No launcher takes part and no file is made.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/base/siphash.h"

namespace torchbridge {

// Who takes part, and where this process finds the others. What is sent over TCP bears a proof made
// with `secret`, which itself is never sent. So other users, who may take one of the ports or
// connect to it, are neither believed nor answered; who can read the network still reads the
// values, as everything that PyTorch's store says. A proof holds for one job and one kind of
// message: to send it again tells nobody anything new. On a node only processes of this user are
// listened to.
struct Group {
  std::string job;  // the same for all ranks, and for no other gathering at the same places; no newline
  SipKey secret{};  // known to this job's processes alone
  int rank = 0, size = 1;

  // The ranks of a node: local rank 0 listens. `node_key` is the same for all of them and for
  // nobody else.
  std::string node_key;
  int local_rank = 0, local_size = 1;

  // Between nodes, for local rank 0. It works out where there is a listener whom every other node
  // calls.
  bool listens = false;
  int listening_rank = -1;                // the node that has this rank listens too, and calls no other places
  std::string listen_at;                  // numeric address; empty: all interfaces
  std::vector<int> ports;                 // the same on all nodes: a listener takes the first that is free
  std::vector<std::string> first_places;  // to be called: numeric addresses or names, tried at once
  std::vector<std::string> other_places;  // tried one after the other, and no more once any node has answered
  // How long any other node is waited for once this node's ranks are complete.
  std::chrono::milliseconds patience = std::chrono::hours(24);

  // Names those that did not come, for messages, by the ranks that came; where empty their ranks
  // are named.
  std::function<std::string(const std::vector<bool>& came)> missing{};
};

using Values = std::vector<std::string>;

// What the listener that has heard of all makes of the values, for all to be answered; its error is
// everybody's.
using Reduce = std::function<Result<Values>(Values)>;

struct Gathered {
  Values values;       // of ranks 0..size-1, or what `reduce` made of them
  std::string nobody;  // where no other node was heard of within `patience`: who was waited for,
                       // for a message
};

// Collective: gives `value` (any bytes, at most 1000) and returns when all values are known. The error
// is everybody's, and reported_elsewhere where it was heard from another rank: at the timeout it names
// the ranks that did not come. A gathering after this one may begin at once at the same places.
// Resolves names meanwhile. A call that fails is made again after a pause with jitter that doubles up
// to 2 s. Not for several threads at once.
Result<Gathered> all_gather(const Group& group, const std::string& value, std::chrono::milliseconds timeout,
                            const Reduce& reduce = {});

}  // namespace torchbridge
