#include "trainer_template/runtime/rendezvous/quiet_c10d.h"

#include <algorithm>

#include <c10/util/Flags.h>

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::train {

QuietC10d::QuietC10d(Level level) : before_(FLAGS_caffe2_log_level) {
  FLAGS_caffe2_log_level = std::max<int>(before_, level);
}
QuietC10d::~QuietC10d() { FLAGS_caffe2_log_level = before_; }

}  // namespace torchbridge::train
