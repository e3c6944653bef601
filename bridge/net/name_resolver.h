// Looks host names up in the background: the system's resolver may take seconds for a name that it
// does not know.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// Not for several threads at once. The destructor does not wait for the thread, which ends after
// its current name.
class NameResolver {
 public:
  NameResolver();
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // Begins to look up all of `names`, one after the other. Once only.
  void start(std::vector<std::string> names);
  // The numeric address of a name that was given to start, or the error of the resolver; nothing
  // while it is looked up.
  std::optional<Result<std::string>> find(const std::string& name) const;
  // For poll(): readable when a look-up has ended; clear_event makes it unreadable again.
  int event() const;
  void clear_event() const;

 private:
  struct State;
  std::shared_ptr<State> shared_;
};

}  // namespace torchbridge
