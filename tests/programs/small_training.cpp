// A training run of milliseconds a step, for faults: what it learns depends on every bit of the
// model, the optimizer and each rank's random generator. Ranks by torchrun's variables.
#include <unistd.h>

#include <random>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <CLI/CLI.hpp>
#include <torchbridge/checkpoint.h>
#include <torchbridge/errors.h>
#include <torchbridge/launch.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>

#include "trainer_template/runtime/base/failpoint.h"
#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/output/metrics.h"

using namespace torchbridge::train;

namespace {

namespace fs = std::filesystem;

// Waits before each operation, up to some milliseconds.
class SlowFiles : public FileLayer {
 public:
  SlowFiles(int most_ms, int rank) : most_ms_(most_ms), random_(static_cast<unsigned>(rank)) {}
  void make_folder(const fs::path& path) override { wait(), FileLayer::make_folder(path); }
  std::unique_ptr<OutputFile> open(const fs::path& path, Owner owner) override {
    return wait(), FileLayer::open(path, owner);
  }
  void sync_folder(const fs::path& path) override { wait(), FileLayer::sync_folder(path), wait(); }
  void rename(const fs::path& from, const fs::path& to) override {
    wait(), FileLayer::rename(from, to), wait();
  }
  void remove(const fs::path& path) override { wait(), FileLayer::remove(path); }

 private:
  void wait() {
    if (most_ms_ > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % (most_ms_ + 1)));
  }
  int most_ms_;
  std::minstd_rand random_;  // used by the saving thread alone while there is one
};

struct Options {
  std::int64_t steps = 12, width = 64;
  bool zero = false, skip = false;
  int slow_files_ms = 0;
  double timeout_s = 30;
  std::string metrics;
  CheckpointOptions checkpoints;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--steps", options.steps);
  app.add_option("--width", options.width);
  app.add_flag("--zero", options.zero);
  app.add_option("--metrics", options.metrics);
  app.add_option("--timeout", options.timeout_s);
  app.add_option("--folder", options.checkpoints.folder);
  app.add_option("--every", options.checkpoints.every);
  app.add_option("--keep", options.checkpoints.keep);
  app.add_option("--keep-every", options.checkpoints.keep_every);
  app.add_option("--bytes-per-s", options.checkpoints.bytes_per_s);
  app.add_flag("--async", options.checkpoints.async);
  app.add_flag("--skip", options.skip);
  app.add_option("--slow-files", options.slow_files_ms);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw EarlyExit(ExitCode::kBadOptions, error.what());
  }
  if (options.skip) options.checkpoints.on_pending_save = CheckpointOptions::OnPendingSave::kSkip;
  return options;
}

GroupOptions group_options(const Options& options) {
  GroupOptions group;
  group.backend = "gloo";
  group.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_s * 1000));
  group.join_timeout = group.timeout;
  group.heartbeat_timeout = std::chrono::seconds(2);
  return group;
}

class Model {
 public:
  explicit Model(std::int64_t width) {
    at::manual_seed(1);
    for (const char* name : {"first", "second"}) {
      tensors.parameters.emplace_back(name,
                                      at::randn({width, width}).div(width).set_requires_grad(true));
    }
    tensors.buffers.emplace_back("seen", at::zeros({}, at::kLong));
  }
  at::Tensor loss(const at::Tensor& inputs) {
    tensors.buffers[0].second.add_(inputs.size(0));
    return inputs.matmul(tensors.parameters[0].second)
        .relu()
        .matmul(tensors.parameters[1].second)
        .sub(inputs)
        .square()
        .mean();
  }
  ModelTensors tensors;
};

std::unique_ptr<Optimizer> optimizer_for(const Options& options, const ModelTensors& model,
                                         ProcessGroup& group) {
  if (!options.zero) return make_adamw(model.parameters, {.lr = 0.001});
  return make_zero({{.parameters = model.parameters, .options = {.lr = 0.001}}}, group,
                   [](auto groups) { return make_adamw(std::move(groups)); });
}

void train(const Options& options, ProcessGroup& group) {
  Model model(options.width);
  const auto optimizer = optimizer_for(options, model.tensors, group);
  at::manual_seed(100 + group.rank());
  SlowFiles files(options.slow_files_ms, group.rank());
  Checkpoints checkpoints(group, options.checkpoints, files);
  TrainState state = checkpoints.resume(model.tensors, *optimizer).value_or(ResumedRun{}).state;
  state.run = "small";  // one run, whatever kills it
  MetricsFile metrics(group.is_first() ? options.metrics : "",
                      {.run = state.run, .step = state.step});
  while (state.step < options.steps) {
    failpoint("step");
    optimizer->zero_grad();
    const at::Tensor loss = model.loss(at::randn({4, options.width}));
    loss.backward();
    for (const auto& [name, parameter] : model.tensors.parameters) group.sum(parameter.grad());
    optimizer->step();
    const at::Tensor sum = loss.detach().clone();
    group.sum(sum);
    metrics.write({.step = ++state.step, .loss = sum.item<double>()});
    if (checkpoints.due(state.step)) checkpoints.save(state, model.tensors, *optimizer);
  }
  checkpoints.save_last(state, model.tensors, *optimizer);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)),
      [&] {
        options = parse(argc, argv);
        return group_options(options);
      },
      [&](ProcessGroup& group) { train(options, group); });
}
