#include "bridge/bootstrap/many_descriptors.h"

namespace torchbridge {

ManyDescriptors::ManyDescriptors() {
  if (getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
  const rlimit most{before_.rlim_max, before_.rlim_max};
  raised_ = setrlimit(RLIMIT_NOFILE, &most) == 0;
}

ManyDescriptors::~ManyDescriptors() {
  if (raised_) setrlimit(RLIMIT_NOFILE, &before_);
}

}  // namespace torchbridge
