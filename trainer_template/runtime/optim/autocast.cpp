#include "trainer_template/runtime/optim/autocast.h"

#include <ATen/autocast_mode.h>
#include <torchbridge/errors.h>

#include "bridge/base/message_text.h"

namespace torchbridge::train {

namespace at_autocast = at::autocast;

Autocast::Autocast(c10::DeviceType device, c10::ScalarType type)
    : device_(device),
      before_enabled_(at_autocast::is_autocast_enabled(device)),
      before_cached_(at_autocast::is_autocast_cache_enabled()),
      before_type_(at_autocast::get_autocast_dtype(device)) {
  if (type != at::kBFloat16 && type != at::kHalf && type != at::kFloat) {
    throw TrainError(
        formatted("autocast to {}: expected BFloat16, Half or Float", c10::toString(type)));
  }
  at_autocast::set_autocast_enabled(device, type != at::kFloat);
  if (type != at::kFloat) at_autocast::set_autocast_dtype(device, type);
  at_autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at_autocast::decrement_nesting() == 0) at_autocast::clear_cache();
  at_autocast::set_autocast_enabled(device_, before_enabled_);
  at_autocast::set_autocast_dtype(device_, before_type_);
  at_autocast::set_autocast_cache_enabled(before_cached_);
}

}  // namespace torchbridge::train
