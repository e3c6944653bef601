// Nodes of one job find each other over TCP, each of them knowing only some of the places where another may be.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <torchbridge/core/result.h>
#include <torchbridge/core/siphash.h>

namespace torchbridge {

// Nodes that listen are called by the others; the first listener that has heard of all ranks answers everybody with the whole
// table. It works out where there is a listener whom every other node calls.
//
// What is sent bears a proof made with `secret`, which itself is never sent. So other users, who may take one of the ports or
// connect to it, are neither believed nor answered; who can read the network still reads the ranks' words, as everything that
// PyTorch's store says. A proof holds for one job and one kind of message: to send it again tells nobody anything new.
struct Gathering {
  SipKey secret{};              // known to this job's processes alone
  std::string job;              // tells jobs apart that share a secret; no newline
  int world_size = 0;
  std::vector<int> ports;       // the same on all nodes: a listener takes the first that is free
  bool listens = false;
  std::vector<std::string> first_places;  // to be called: numeric addresses or names, tried at once
  std::vector<std::string> other_places;  // tried one after the other, and no more once any node has answered
  bool provisional = false;               // not all ranks of this node are there: when the time is over, the others are to call again
  std::chrono::milliseconds timeout{};    // for all ranks to come
  std::chrono::milliseconds patience{};   // for any other node to be heard of
};

struct Gathered {
  std::vector<std::string> values;  // of ranks 0..world_size-1; empty where nobody was heard of
  std::string nobody;               // then: whom was waited for, for a message
};

// `own` are the values of this node's ranks. Returns when all are known, or, without values, when `patience` is over and no other
// node was heard of. The error, at the timeout, names the ranks that did not come. Resolves names while it goes on.
Result<Gathered> gather(const Gathering& gathering, const std::map<int, std::string>& own);

}  // namespace torchbridge
