// For a process that holds a connection to every node of a large job.
#pragma once

#include <sys/resource.h>

namespace torchbridge {

// Raises the limit of open descriptors to the hard limit for its lifetime; the destructor restores
// the limit before.
class RaisedDescriptorLimit {
 public:
  RaisedDescriptorLimit() {
    if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
    const rlimit most{before_.rlim_max, before_.rlim_max};
    raised_ = setrlimit(RLIMIT_NOFILE, &most) == 0;
  }
  ~RaisedDescriptorLimit() {
    if (raised_) setrlimit(RLIMIT_NOFILE, &before_);
  }
  const rlimit& old() const { return before_; }  // for child processes
  RaisedDescriptorLimit(const RaisedDescriptorLimit&) = delete;
  RaisedDescriptorLimit& operator=(const RaisedDescriptorLimit&) = delete;

 private:
  rlimit before_{};
  bool raised_ = false;
};

}  // namespace torchbridge
