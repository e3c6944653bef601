#include "tasks.h"

std::span<const torchbridge::train::TaskRegistration> registered_tasks() {
  static const torchbridge::train::TaskRegistration kinds[] = {digits_task(), text_task(),
                                                               table_task()};
  return kinds;
}
