// Times saves of a state of a given size, or the way from the start of the process to a state that is loaded. Prints one JSON object.
#include <ATen/ops/randn.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/train/checkpoint/checkpoint.h>
#include <torchbridge/train/run/job.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

using namespace torchbridge::train;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTensorBytes = std::int64_t{16} << 20;

// As many weights of 16 MiB as come to a third of the state: AdamW keeps two more of each.
ModelTensors model_of(std::int64_t megabytes) {
  ModelTensors model;
  const std::int64_t count = std::max<std::int64_t>(1, megabytes * 1'000'000 / 3 / kTensorBytes);
  const std::int64_t elements = megabytes * 1'000'000 / 3 / count / 4;
  for (std::int64_t i = 0; i < count; ++i) {
    model.parameters.emplace_back("layers." + std::to_string(i) + ".weight", at::randn({elements}).set_requires_grad(true));
  }
  return model;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

void save(Checkpoints& checkpoints, const ModelTensors& model, Optimizer& optimizer, int saves) {
  for (const auto& [name, weight] : model.parameters) weight.mutable_grad() = weight.detach().clone();
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

}  // namespace

// checkpoint_speed FOLDER MEGABYTES sync|async SAVES, or ... resume
int main(int argc, char** argv) {
  const auto begin = Clock::now();
  if (argc < 4) return 2;
  const std::string way = argv[3];
  return run_job(torchbridge::EnvMap::from(environ), [] { return GroupOptions{}; }, [&](ProcessGroup& group) {
    const ModelTensors model = model_of(std::stoll(argv[2]));
    const auto optimizer = make_adamw(model.parameters, {});
    CheckpointOptions options;
    options.folder = argv[1];
    options.keep = 1;
    options.async = way == "async";
    const auto made = Clock::now();
    Checkpoints checkpoints(group, options);
    if (way != "resume") return save(checkpoints, model, *optimizer, std::stoi(argv[4]));
    const auto manifest = checkpoints.resume(model, *optimizer);
    if (!manifest) throw TrainError("there is no checkpoint");
    if (group.is_first()) std::printf("{\"load\": %f, \"since_start\": %f}\n", seconds_since(made), seconds_since(begin));
  });
}
