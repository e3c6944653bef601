#include "trainer_template/runtime/rendezvous/quiet_c10d.h"

#include <algorithm>
#include <mutex>

#include <c10/util/Flags.h>

C10_DECLARE_int(caffe2_log_level);

namespace torchbridge::train {
namespace {

std::mutex mutex;
int alive = 0;
int level_before = 0;  // of the first of those alive

}  // namespace

QuietC10d::QuietC10d(Level level) {
  const std::scoped_lock lock(mutex);
  if (alive++ == 0) level_before = FLAGS_caffe2_log_level;
  FLAGS_caffe2_log_level = std::max<int>(FLAGS_caffe2_log_level, level);
}

QuietC10d::~QuietC10d() {
  const std::scoped_lock lock(mutex);
  if (--alive == 0) FLAGS_caffe2_log_level = level_before;
}

}  // namespace torchbridge::train
