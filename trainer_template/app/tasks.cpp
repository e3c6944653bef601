#include "tasks.h"

std::span<const torchbridge::train::TaskKind> task_kinds() {
  static const torchbridge::train::TaskKind kinds[] = {digits_task(), text_task(), table_task()};
  return kinds;
}
