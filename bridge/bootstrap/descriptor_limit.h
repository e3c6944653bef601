// For a process that holds a connection to every node of a large job.
#pragma once

#include <sys/resource.h>

namespace torchbridge {

// As many descriptors as the hard limit allows, as long as it lives; the limit that was is the
// program's again afterwards.
class RaisedDescriptorLimit {
 public:
  RaisedDescriptorLimit();
  ~RaisedDescriptorLimit();
  RaisedDescriptorLimit(const RaisedDescriptorLimit&) = delete;
  RaisedDescriptorLimit& operator=(const RaisedDescriptorLimit&) = delete;

 private:
  rlimit before_{};
  bool raised_ = false;
};

}  // namespace torchbridge
