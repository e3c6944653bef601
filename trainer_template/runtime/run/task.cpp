#include <torchbridge/train/run/task.h>

namespace torchbridge::train {

Metric accuracy() {
  return {"accuracy", [](const at::Tensor& outputs, const at::Tensor& targets) {
            return outputs.argmax(-1).eq(targets).to(at::kDouble).mean();
          }};
}

}  // namespace torchbridge::train
