#include "bridge/bootstrap/descriptor_limit.h"

namespace torchbridge {

RaisedDescriptorLimit::RaisedDescriptorLimit() {
  if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
  const rlimit most{before_.rlim_max, before_.rlim_max};
  raised_ = setrlimit(RLIMIT_NOFILE, &most) == 0;
}

RaisedDescriptorLimit::~RaisedDescriptorLimit() {
  if (raised_) setrlimit(RLIMIT_NOFILE, &before_);
}

}  // namespace torchbridge
