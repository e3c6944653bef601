// Trains every case of a table that has this world size; tests/reference/ddp_cases.py does the same
// with Python's DDP.
//
//     RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... ddp_cases TABLE.json FOLDER
//
// FOLDER holds the initial weights, MODEL.safetensors or MODEL.pt. Each rank prints to standard
// output: the case's name, the loss of each forward pass (bits and value), checksums of what is
// left at the end. Keys of a case: tests/reference/ddp_cases.py.
#include <cstdio>
#include <cstring>
#include <fstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torchbridge/checkpoint.h>
#include <torchbridge/formats.h>
#include <torchbridge/launch.h>
#include <torchbridge/optimizer.h>
#include <torchbridge/process_group.h>
#include <zlib.h>

#include "tests/programs/ddp_models.h"
#include "tests/support/paths.h"
#include "trainer_template/runtime/data/epoch_order.h"
#include "trainer_template/runtime/optim/autocast.h"

using namespace torchbridge::train;
using Json = nlohmann::json;

namespace {

struct Digits {
  explicit Digits(const std::string& folder) {
    const IdxImages images = read_idx_images(folder, "train");
    pixels = at::empty({images.count, images.rows, images.columns}, at::kByte);
    std::memcpy(pixels.mutable_data_ptr(), images.pixels.data(), images.pixels.size());
    labels = at::empty({images.count}, at::kLong);
    std::copy(images.labels.begin(), images.labels.end(), labels.mutable_data_ptr<std::int64_t>());
  }
  at::Tensor pixels, labels;
};

// Plain steps also take sparse gradients, which the fused ones reject.
struct PlainSgd {
  void step(double learning_rate) const {
    const at::NoGradGuard no_grad;
    for (const auto& [name, parameter] : parameters) {
      if (parameter.grad().defined()) at::Tensor(parameter).add_(parameter.grad(), -learning_rate);
    }
  }
  NamedTensors parameters;
};

std::uint32_t checksum(const at::Tensor& tensor) {
  const at::Tensor bytes = (tensor.is_sparse() ? tensor.to_dense() : tensor).detach().contiguous();
  return crc32(0, static_cast<const Bytef*>(bytes.const_data_ptr()),
               static_cast<uInt>(bytes.nbytes()));
}

void print_loss(const at::Tensor& loss) {
  const float value = loss.item<float>();
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  std::printf("%08x %.9g\n", bits, value);
}

CommHook own_hook(ProcessGroup& group) {
  return {
      "own_hook", [run = allreduce_hook(group).run](c10d::GradBucket& bucket) {
        return run(bucket)->then(
            [](c10::ivalue::Future& mean) { return c10::IValue(mean.value().toTensor() * 0.5); },
            c10::TensorType::get());
      }};
}

CommHook hook_of(const std::string& name, ProcessGroup& group) {
  if (name == "allreduce") return allreduce_hook(group);
  if (name == "fp16") return fp16_compress_hook(group);
  if (name == "bf16") return bf16_compress_hook(group);
  if (name == "fp16_wrapper") return fp16_compress_wrapper(allreduce_hook(group));
  if (name == "bf16_wrapper") return bf16_compress_wrapper(allreduce_hook(group));
  if (name == "own") return own_hook(group);
  throw TrainError("hook '" + name + "' is not known");
}

DdpOptions ddp_options(const Json& given) {
  DdpOptions options;
  for (const auto& [key, value] : given.items()) {
    if (key == "bucket_cap_mb")
      options.bucket_cap_mb = value.get<double>();
    else if (key == "bucket_cap_mb_list")
      options.bucket_cap_mb_list = value.get<std::vector<double>>();
    else if (key == "gradient_as_bucket_view")
      options.gradient_as_bucket_view = value;
    else if (key == "find_unused_parameters")
      options.find_unused_parameters = value;
    else if (key == "static_graph")
      options.static_graph = value;
    else if (key == "broadcast_buffers")
      options.broadcast_buffers = value;
    else if (key == "forward_sync_buffers")
      options.forward_sync_buffers = value.get<bool>();
    else if (key == "batched_grad_copy")
      options.batched_grad_copy = value;
    else if (key == "lazy_bucket_allocation")
      options.lazy_bucket_allocation = value;
    else if (key == "skip_all_reduce_unused_params")
      options.skip_all_reduce_unused_params = value;
    else if (key == "ignore")
      options.ignore = value.get<std::set<std::string>>();
    else
      throw TrainError("DDP option '" + key + "' is not known");
  }
  return options;
}

class CaseRun {
 public:
  CaseRun(const Json& c, const std::string& folder, const Digits& digits, ProcessGroup& group)
      : case_(c),
        digits_(digits),
        group_(group),
        sampler_{.size = digits.labels.numel(),
                 .world_size = group.world_size(),
                 .rank = group.rank(),
                 .seed = 3} {
    const std::string kind = c.at("model");
    model_ =
        make_case_model(kind.starts_with("jit_") ? "jit:" + folder + "/" + kind + ".pt" : kind);
    if (!kind.starts_with("jit_"))
      init_from(folder + "/" + kind + ".safetensors", model_.tensors, group);
    if (group.rank() > 0) spoil_values();
    const auto& parameters = model_.tensors.parameters;
    const std::string optimizer = c.value("optimizer", "sgd");
    if (optimizer == "adamw") optimizer_ = make_adamw(parameters, {.weight_decay = 0.01});
    if (optimizer == "sgd")
      optimizer_ = make_sgd(parameters, {.momentum = 0.9, .weight_decay = 0.001});
    learning_rate_ = c.value("lr", 0.05);
    make_ddp({});
  }

  void train() {
    const int steps = case_.contains("uneven") ? case_["uneven"].at(group_.rank()).get<int>()
                                               : case_.value("steps", 0);
    const int epochs = case_.value("epochs", 1);
    if (case_.contains("join")) {
      const Json& given = case_["join"];
      JoinOptions options;
      options.divide_by_initial_world_size = given.value("divide_by_initial_world_size", true);
      options.throw_on_early_termination = given.value("throw_on_early_termination", false);
      try {
        join({ddp_.get()}, group_, options, [&] { loop(epochs, steps); });
      } catch (const InputsExhausted&) {
        std::puts("inputs exhausted");
      }
    } else {
      loop(epochs, steps);
    }
    print_end();
  }

 private:
  // DDP must bring them back.
  void spoil_values() {
    const at::NoGradGuard no_grad;
    const DdpOptions options = ddp_options(case_.value("ddp", Json::object()));
    for (const auto& [name, tensor] : options.broadcast_buffers || options.forward_sync_buffers
                                          ? model_.tensors.all()
                                          : model_.tensors.parameters) {
      if (!options.ignore.contains(name)) tensor.fill_(1);
    }
  }

  void make_ddp(const BucketLayout& buckets) {
    DdpOptions options = ddp_options(case_.value("ddp", Json::object()));
    options.buckets = buckets;
    if (case_.contains("delay")) {
      options.delay_all_reduce = {case_["delay"].at("names").get<std::vector<std::string>>(),
                                  case_["delay"].at("until")};
    }
    ddp_.reset();
    ddp_ = std::make_unique<DistributedDataParallel>(model_.tensors, group_, options);
    if (case_.contains("hook")) ddp_->register_comm_hook(hook_of(case_["hook"], group_));
  }

  void loop(int epochs, int max_steps) {
    const int accumulation = case_.value("accumulation", 1);
    const std::int64_t batch =
        case_.value("batch", std::max<std::int64_t>(1, 28 / (group_.world_size() * accumulation)));
    int forwards = 0;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const std::vector<std::int64_t> indices =
          rank_shard(sampler_, EpochOrder(sampler_, epoch), 0, 0, samples_per_rank(sampler_));
      for (std::size_t begin = 0; begin < indices.size(); begin += batch) {
        if (max_steps > 0 && forwards == max_steps * accumulation) return;
        const auto end = std::min<std::size_t>(begin + batch, indices.size());
        const at::Tensor chosen = at::empty({static_cast<std::int64_t>(end - begin)}, at::kLong);
        std::copy(indices.begin() + begin, indices.begin() + end,
                  chosen.mutable_data_ptr<std::int64_t>());
        ++forwards;
        part_of_step(chosen, forwards, forwards % accumulation == 0, accumulation);
      }
    }
  }

  void part_of_step(const at::Tensor& chosen, int number, bool is_last, int accumulation) {
    std::optional<DistributedDataParallel::NoSync> no_sync;
    if (!is_last) no_sync.emplace(*ddp_);
    // Which ranks use the branch changes from step to step.
    const StepInputs inputs{
        .pixels = digits_.pixels.index_select(0, chosen),
        .targets = digits_.labels.index_select(0, chosen),
        .with_branch = case_.value("with_branch", false) && number % 3 == group_.rank() % 3,
        .all_outputs = case_.value("all_outputs", false)};
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU,
                              case_.value("autocast", false) ? at::kBFloat16 : at::kFloat);
      loss = model_.loss(*ddp_, inputs);
    }
    print_loss(loss);
    (accumulation > 1 ? loss / accumulation : loss).backward();
    if (!is_last) return;
    if (case_.contains("clip")) clip_grad_norm(parameters(), {.max_norm = case_["clip"]});
    if (optimizer_) {
      optimizer_->step(learning_rate_);
    } else {
      PlainSgd{model_.tensors.parameters}.step(learning_rate_);
    }
    last_gradients_ = gradients();
    for (const auto& [name, parameter] : model_.tensors.parameters)
      parameter.mutable_grad().reset();
    if (number / accumulation == case_.value("restart_at", 0)) make_ddp(ddp_->buckets());
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> found;
    for (const auto& [name, parameter] : model_.tensors.parameters) found.push_back(parameter);
    return found;
  }

  std::map<std::string, std::uint32_t> gradients() const {
    std::map<std::string, std::uint32_t> sums;
    for (const auto& [name, parameter] : model_.tensors.parameters) {
      sums[name] = parameter.grad().defined() ? checksum(parameter.grad()) : 0;
    }
    return sums;
  }

  void print_end() {
    for (const auto& [name, sum] : last_gradients_)
      std::printf("gradient %s %08x\n", name.c_str(), sum);
    for (const auto& [name, tensor] : model_.tensors.all())
      std::printf("value %s %08x\n", name.c_str(), checksum(tensor));
    if (!case_.value("logging_data", false)) return;
    const DdpLoggingData data = ddp_->logging_data();
    // What both sides decide themselves; times and the names of classes differ.
    for (const char* key : {"bucket_sizes", "rebuilt_bucket_sizes", "dtypes", "backend_name"}) {
      const auto found = data.strings.find(key);
      std::printf("%s %s\n", key, found == data.strings.end() ? "none" : found->second.c_str());
    }
    for (const char* key :
         {"world_size", "rank", "iteration", "bucket_cap_bytes", "first_bucket_bytes",
          "find_unused_parameters", "gradient_as_bucket_view", "broadcast_buffers",
          "has_rebuilt_buckets", "num_parameter_tensors", "total_parameter_size_bytes",
          "static_graph", "has_error"}) {
      const auto found = data.numbers.find(key);
      std::printf("%s %lld\n", key,
                  found == data.numbers.end() ? -1LL : static_cast<long long>(found->second));
    }
  }

  const Json& case_;
  const Digits& digits_;
  ProcessGroup& group_;
  SamplerOptions sampler_;
  CaseModel model_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<Optimizer> optimizer_;
  double learning_rate_ = 0;
  std::map<std::string, std::uint32_t> last_gradients_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto train = [&](ProcessGroup& group) {
    if (arguments.size() != 2) throw TrainError("expected TABLE.json FOLDER");
    const Json table = Json::parse(std::ifstream(arguments[0]));
    const Digits digits(in_source("data/digits"));
    for (const Json& c : table.at("cases")) {
      const auto worlds = c.at("worlds").get<std::vector<int>>();
      if (std::count(worlds.begin(), worlds.end(), group.world_size()) == 0) continue;
      std::printf("case %s\n", c.at("name").get<std::string>().c_str());
      CaseRun(c, arguments[1], digits, group).train();
    }
  };
  return run_job(
      torchbridge::LaunchOrigin(torchbridge::EnvMap::from(environ)), [] { return GroupOptions{}; },
      train);
}
