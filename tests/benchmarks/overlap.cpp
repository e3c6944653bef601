// Trains a model of three wide layers on random numbers and prints, on rank 0, what DDP measured of
// its backward passes, in milliseconds: computing, communicating, and both at once.
// overlap_reference.py does the same.
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... overlap WIDTH BATCH BUCKET_CAP_MB STEPS
#include <cstdio>

#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torchbridge/ddp.h>
#include <torchbridge/launch.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>
#include <torchbridge/task.h>

namespace {

using namespace torchbridge::train;

struct Shape {
  std::int64_t width = 0, batch = 0;
  double bucket_cap_mb = 0;
  int steps = 0;
};

void measure(const Shape& shape, ProcessGroup& group) {
  torch::nn::Sequential model;
  for (int layer = 0; layer < 3; ++layer) {
    model->push_back(Linear(shape.width, shape.width));
    model->push_back(torch::nn::ReLU());
  }
  const ModelTensors tensors = tensors_of(*model);
  const auto optimizer = make_sgd(tensors.parameters, {});
  DistributedDataParallel ddp(
      tensors, group, {.bucket_cap_mb = shape.bucket_cap_mb, .gradient_as_bucket_view = true});
  ddp.set_runtime_logging_sample_rate(1);
  for (int step = 0; step < shape.steps; ++step) {
    const at::Tensor inputs = at::randn({shape.batch, shape.width});
    ddp.forward([&] { return model->forward(inputs); }).square().mean().backward();
    optimizer->step(0.01);
    optimizer->zero_grad();
  }
  if (!group.is_first()) return;
  const DdpLoggingData data = ddp.logging_data();
  for (const char* what : {"avg_backward_compute_time", "avg_backward_comm_time",
                           "avg_backward_compute_comm_overlap_time"}) {
    const auto found = data.numbers.find(what);  // nanoseconds
    std::printf("%.3f\n",
                found == data.numbers.end() ? 0. : static_cast<double>(found->second) / 1e6);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto train = [&](ProcessGroup& group) {
    if (count != 5) throw TrainError("expected WIDTH BATCH BUCKET_CAP_MB STEPS");
    measure({std::stoll(arguments[1]), std::stoll(arguments[2]), std::stod(arguments[3]),
             std::stoi(arguments[4])},
            group);
  };
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [] { return GroupOptions{}; },
      train);
}
