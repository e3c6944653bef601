// Looks host names up in the background: the system's resolver may take seconds for a name that it does not know.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bridge/base/result.h"
#include "bridge/net/socket.h"

namespace torchbridge {

// Not for several threads at once. The thread that it starts is not waited for: it ends after the name that it is at.
class NameResolver {
 public:
  NameResolver();
  ~NameResolver();
  NameResolver(const NameResolver&) = delete;
  NameResolver& operator=(const NameResolver&) = delete;

  // Begins to look up all of `names`, one after the other. Once only.
  void start(std::vector<std::string> names);
  // The numeric address of a name that was given to start, or why it has none; nothing as long as that is not known.
  std::optional<Result<std::string>> find(const std::string& name) const;
  // For poll(): ready to be read when more is known; clear_news makes it unready again.
  int news() const;
  void clear_news() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace torchbridge
