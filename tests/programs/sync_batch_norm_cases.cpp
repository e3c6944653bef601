// Each rank normalises its share of a batch by SyncBatchNorm, forward and backward, and compares it
// with BatchNorm over the whole batch.
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... sync_batch_norm_cases 5,2 [cpu|cuda]
//
// takes the number of samples of each rank, and the device (cpu). Prints a line a case: name,
// largest difference. "other shape on rank 1" lets DDP find that.
#include <cstdio>
#include <numeric>
#include <sstream>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torchbridge/ddp.h>
#include <torchbridge/launch.h>
#include <torchbridge/process_group.h>
#include <torchbridge/sync_batch_norm.h>

using namespace torchbridge::train;

namespace {

constexpr std::int64_t kChannels = 3;

struct Case {
  const char* name;
  std::vector<std::int64_t> shape;  // behind the samples
  at::ScalarType type;
  double allowed;  // relative to the largest value
  torch::nn::BatchNormOptions options = torch::nn::BatchNormOptions(kChannels);
  bool channels_last = false, training = true;
};

const Case kCases[] = {
    {.name = "float", .shape = {kChannels, 5, 4}, .type = at::kFloat, .allowed = 2e-6},
    {.name = "double", .shape = {kChannels, 5, 4}, .type = at::kDouble, .allowed = 1e-14},
    {.name = "two dimensions", .shape = {kChannels}, .type = at::kDouble, .allowed = 1e-14},
    {.name = "five dimensions", .shape = {kChannels, 2, 3, 2}, .type = at::kFloat, .allowed = 2e-6},
    {.name = "channels last",
     .shape = {kChannels, 5, 4},
     .type = at::kFloat,
     .allowed = 2e-6,
     .channels_last = true},
    {.name = "not affine",
     .shape = {kChannels, 6},
     .type = at::kDouble,
     .allowed = 1e-14,
     .options = torch::nn::BatchNormOptions(kChannels).affine(false)},
    {.name = "no running statistics",
     .shape = {kChannels, 6},
     .type = at::kDouble,
     .allowed = 1e-14,
     .options = torch::nn::BatchNormOptions(kChannels).track_running_stats(false)},
    {.name = "cumulative average",
     .shape = {kChannels, 6},
     .type = at::kDouble,
     .allowed = 1e-14,
     .options = torch::nn::BatchNormOptions(kChannels).momentum(std::nullopt)},
    {.name = "large mean",
     .shape = {kChannels, 6},
     .type = at::kDouble,
     .allowed = 1e-9,
     .options = torch::nn::BatchNormOptions(kChannels).eps(1e-3)},
    {.name = "eval",
     .shape = {kChannels, 5, 4},
     .type = at::kFloat,
     .allowed = 2e-6,
     .training = false},
};

double largest_difference(const at::Tensor& ours, const at::Tensor& expected) {
  if (expected.numel() == 0) return 0;
  return ((ours - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item<double>();
}

// The dimensions do not matter to its arithmetic.
struct AnyBatchNorm : torch::nn::BatchNormImplBase<2, AnyBatchNorm> {
  using BatchNormImplBase::BatchNormImplBase;
  void _check_input_dim(const at::Tensor&) override {}
};

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone(at::MemoryFormat::Preserve).set_requires_grad(true);
}

class Comparison {
 public:
  Comparison(const Case& c, const std::vector<std::int64_t>& samples, ProcessGroup& group)
      : case_(c), group_(group), whole_(c.options), share_(c.options, &group) {
    whole_.to(group.device(), c.type);
    share_.to(group.device(), c.type);
    whole_.train(c.training);
    share_.train(c.training);
    begin_ = std::accumulate(samples.begin(), samples.begin() + group.rank(), std::int64_t{0});
    count_ = samples[group.rank()];
    total_ = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
    if (c.options.affine()) {
      const at::NoGradGuard no_grad;
      whole_.weight.copy_(random({kChannels}));
      whole_.bias.copy_(random({kChannels}));
      share_.weight.copy_(whole_.weight);
      share_.bias.copy_(whole_.bias);
    }
  }

  // Two steps, since running statistics grow.
  double difference() {
    for (int step = 0; step < 2; ++step) compare_step();
    if (case_.options.track_running_stats()) {
      note(share_.running_mean, whole_.running_mean);
      note(share_.running_var, whole_.running_var);
      note(share_.num_batches_tracked.to(at::kDouble), whole_.num_batches_tracked.to(at::kDouble));
    }
    return largest_;
  }

 private:
  at::Tensor random(std::vector<std::int64_t> shape) {
    return at::randn(shape, generator_, at::TensorOptions(case_.type)).to(group_.device());
  }

  void compare_step() {
    std::vector<std::int64_t> shape = {total_};
    shape.insert(shape.end(), case_.shape.begin(), case_.shape.end());
    at::Tensor batch = random(shape), gradient = random(shape);
    if (std::string(case_.name) == "large mean") batch = batch + 1000;
    if (case_.channels_last) batch = batch.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor all_input = leaf(batch), input = leaf(batch.narrow(0, begin_, count_));
    const at::Tensor expected = whole_.forward(all_input), output = share_.forward(input);
    note(output, expected.narrow(0, begin_, count_));
    expected.backward(gradient);
    output.backward(gradient.narrow(0, begin_, count_));
    note(input.grad(), all_input.grad().narrow(0, begin_, count_));
    if (!case_.options.affine()) return;
    for (const auto& [ours, theirs] :
         {std::pair(share_.weight, whole_.weight), std::pair(share_.bias, whole_.bias)}) {
      const at::Tensor sum = ours.grad().clone();
      group_.sum(sum);
      note(sum, theirs.grad());
    }
    share_.zero_grad();
    whole_.zero_grad();
  }

  void note(const at::Tensor& ours, const at::Tensor& expected) {
    if (ours.sizes() != expected.sizes())
      throw TrainError(std::string(case_.name) + ": another shape");
    const double found = largest_difference(ours.detach(), expected.detach());
    if (!(found <= case_.allowed))
      throw TrainError(std::string(case_.name) + ": differs by " + c10::str(found));
    largest_ = std::max(largest_, found);
  }

  const Case& case_;
  ProcessGroup& group_;
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>(5);
  AnyBatchNorm whole_;
  SyncBatchNormImpl share_;
  std::int64_t begin_ = 0, count_ = 0, total_ = 0;
  double largest_ = 0;
};

void make_ddp_of_other_shapes(ProcessGroup& group) {
  const at::Tensor weight = at::zeros({group.rank() == 1 ? 4 : 3, 2}).set_requires_grad(true);
  DistributedDataParallel({.parameters = {{"weight", weight}}, .buffers = {}}, group);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  const auto compare = [&](ProcessGroup& group) {
    if (argument.starts_with("other shape")) return make_ddp_of_other_shapes(group);
    std::vector<std::int64_t> samples;
    std::istringstream list(argument);
    for (std::string number; std::getline(list, number, ',');)
      samples.push_back(std::stoll(number));
    if (std::ssize(samples) != group.world_size())
      throw TrainError("expected a number of samples a rank: 5,2");
    for (const Case& c : kCases)
      std::printf("%s %.3g\n", c.name, Comparison(c, samples, group).difference());
  };
  GroupOptions options;
  if (argc > 2) options.device_id = c10::Device(argv[2]);
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [&] { return options; },
      compare);
}
