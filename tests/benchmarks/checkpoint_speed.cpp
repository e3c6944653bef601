// Times saves of a state of a given size, alone or within a training, or the way from the start of
// the process to a state that is loaded. Prints one JSON object.
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/ops/randn.h>
#include <torchbridge/checkpoint.h>
#include <torchbridge/launch.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"

using namespace torchbridge::train;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTensorBytes = std::int64_t{16} << 20;
constexpr int kUndisturbed = 4;  // steps before each save

// As many square weights of about 16 MiB as come to a third of the state: AdamW keeps two more of
// each.
ModelTensors model_of(std::int64_t megabytes) {
  ModelTensors model;
  const std::int64_t count = std::max<std::int64_t>(1, megabytes * 1'000'000 / 3 / kTensorBytes);
  const auto side = static_cast<std::int64_t>(
      std::sqrt(static_cast<double>(megabytes) * 1e6 / 3 / static_cast<double>(count) / 4));
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor weight = at::randn({side, side}) * std::sqrt(2.0 / static_cast<double>(side));
    model.parameters.emplace_back("layers." + std::to_string(i) + ".weight",
                                  weight.set_requires_grad(true));
  }
  return model;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

void save(Checkpoints& checkpoints, const ModelTensors& model, Optimizer& optimizer, int saves) {
  for (const auto& [name, weight] : model.parameters)
    weight.mutable_grad() = weight.detach().clone();
  optimizer.step();
  optimizer.zero_grad();
  std::vector<double> stalls, totals;
  for (int i = 1; i <= saves; ++i) {
    const auto begin = Clock::now();
    checkpoints.save({.step = i}, model, optimizer);
    stalls.push_back(seconds_since(begin));
    checkpoints.finish();
    totals.push_back(seconds_since(begin));
  }
  std::printf("{\"stalls\": %s, \"totals\": %s}\n", list(stalls).c_str(), list(totals).c_str());
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// What steps took, in seconds: in all, of this thread's processor time, and waiting for a copy.
struct Steps {
  std::vector<double> seconds, cpu, waits;

  std::string json() const {
    return "{\"seconds\": " + list(seconds) + ", \"cpu\": " + list(cpu) +
           ", \"waits\": " + list(waits) + "}";
  }
};

class Training {
 public:
  Training(const ModelTensors& model, Optimizer& optimizer, const Checkpoints& checkpoints,
           std::int64_t rows)
      : model_(model),
        optimizer_(optimizer),
        checkpoints_(checkpoints),
        inputs_(at::randn({rows, model.parameters[0].second.size(0)})) {}

  void step(Steps& steps) {
    const auto begin = Clock::now();
    const double cpu = cpu_seconds();
    optimizer_.zero_grad();
    at::Tensor values = inputs_;
    for (const auto& [name, weight] : model_.parameters) values = values.matmul(weight).relu();
    values.square().mean().backward();
    const auto wait = Clock::now();
    checkpoints_.wait_copied();  // as the optimizer's step does
    steps.waits.push_back(seconds_since(wait));
    optimizer_.step();
    steps.cpu.push_back(cpu_seconds() - cpu);
    steps.seconds.push_back(seconds_since(begin));
  }

 private:
  const ModelTensors& model_;
  Optimizer& optimizer_;
  const Checkpoints& checkpoints_;
  const at::Tensor inputs_;
};

// Of each save: the steps before it, the call, and the steps from then until the files are on the
// disk.
void save_in_training(Checkpoints& checkpoints, const CheckpointOptions& options,
                      const ModelTensors& model, Optimizer& optimizer, int saves,
                      std::int64_t rows) {
  Training training(model, optimizer, checkpoints, rows);
  Steps warm;
  training.step(warm);
  std::string text;
  for (int i = 1; i <= saves; ++i) {
    Steps before, after;
    for (int step = 0; step < kUndisturbed; ++step) training.step(before);
    const auto begin = Clock::now();
    checkpoints.save({.step = i}, model, optimizer);
    const double call = seconds_since(begin);
    const auto done = options.folder / step_folder(i) / kDoneFile;
    do {
      training.step(after);
    } while (!std::filesystem::exists(done));
    text += (text.empty() ? "[" : ", ") +
            ("{\"before\": " + before.json() + ", \"call\": " + std::to_string(call) +
             ", \"after\": " + after.json() + "}");
  }
  checkpoints.finish();
  std::printf("%s]\n", text.c_str());
}

}  // namespace

// checkpoint_speed FOLDER MEGABYTES sync|async SAVES [ROWS of a training's batches], or ... resume
int main(int argc, char** argv) {
  const auto begin = Clock::now();
  if (argc < 4) return 2;
  const std::string way = argv[3];
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [] { return GroupOptions{}; },
      [&](ProcessGroup& group) {
        const ModelTensors model = model_of(std::stoll(argv[2]));
        const auto optimizer = make_adamw(model.parameters, {.lr = 1e-5});
        CheckpointOptions options;
        options.folder = argv[1];
        options.keep = argc > 4 ? std::stoi(argv[4]) : 1;  // none is removed: nor do the others
        options.async = way == "async";
        const auto made = Clock::now();
        Checkpoints checkpoints(group, options);
        if (argc > 5)
          return save_in_training(checkpoints, options, model, *optimizer, std::stoi(argv[4]),
                                  std::stoll(argv[5]));
        if (way != "resume") return save(checkpoints, model, *optimizer, std::stoi(argv[4]));
        const auto resumed = checkpoints.resume(model, *optimizer);
        if (!resumed) throw TrainError("there is no checkpoint");
        if (group.is_first())
          std::printf("{\"load\": %f, \"since_start\": %f}\n", seconds_since(made),
                      seconds_since(begin));
      });
}
