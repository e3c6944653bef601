#include <algorithm>
#include <limits>
#include <tuple>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torchbridge/ddp.h>

#include "bridge/base/message_text.h"
#include "trainer_template/runtime/backends/c10d_versions.h"
#include "trainer_template/runtime/ddp/ddp_sink.h"
#include "trainer_template/runtime/ddp/delayed_all_reduce.h"
#include "trainer_template/runtime/ddp/parameter_sync.h"

namespace torchbridge::train {
namespace {

constexpr double kDefaultCapMb = 25;

class Hook final : public c10d::CommHookInterface {
 public:
  explicit Hook(CommHook hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return hook_.run(bucket);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  CommHook hook_;
};

std::vector<at::Tensor> tensors_only(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

const at::Tensor& find(const NamedTensors& named, const std::string& name) {
  const auto found = std::ranges::find(named, name, &NamedTensors::value_type::first);
  if (found == named.end())
    throw TrainError(formatted(
        "DDP's delay_all_reduce names '{}', which is not a parameter of the model", name));
  return found->second;
}

std::int64_t bytes(double mib) {
  if (!(mib > 0))
    throw TrainError(
        formatted("DDP's bucket cap of {} MiB: expected more than 0", std::to_string(mib)));
  return static_cast<std::int64_t>(mib * 1024 * 1024);
}

struct BucketCaps {
  explicit BucketCaps(const DdpOptions& options) {
    for (double mib : options.bucket_cap_mb_list) list.push_back(bytes(mib));
    const bool is_default = list.empty() && !options.bucket_cap_mb;
    cap = list.empty() ? bytes(options.bucket_cap_mb.value_or(kDefaultCapMb))
                       : *std::ranges::max_element(list);
    first = is_default ? c10d::kDefaultFirstBucketBytes : cap;
  }

  // For the first step, before backward has shown the order of the gradients: one bucket, or
  // several where unused parameters must be found.
  std::vector<std::size_t> initial(const DdpOptions& options) const {
    if (!list.empty()) return {list.begin(), list.end()};
    if (options.static_graph || !options.find_unused_parameters) {
      return {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
    }
    if (first == cap) return {static_cast<std::size_t>(cap)};
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(cap)};
  }

  std::int64_t first = 0, cap = 0;
  std::vector<std::int64_t> list;
};

bool contains_each_once(const BucketLayout& layout, std::size_t count) {
  std::vector<std::size_t> indices;
  for (const auto& bucket : layout) indices.insert(indices.end(), bucket.begin(), bucket.end());
  std::ranges::sort(indices);
  if (indices.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (indices[i] != i) return false;
  }
  return std::ranges::none_of(layout, [](const auto& bucket) { return bucket.empty(); });
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(ModelTensors model, ProcessGroup& group,
                                                 DdpOptions options)
    : model_(std::move(model)), group_(group), options_(std::move(options)) {
  const auto is_ignored = [&](const auto& entry) { return options_.ignore.contains(entry.first); };
  std::erase_if(model_.parameters, is_ignored);
  std::erase_if(model_.buffers, is_ignored);
  if (std::ranges::none_of(model_.parameters,
                           [](const auto& entry) { return entry.second.requires_grad(); })) {
    throw TrainError("the model has no parameter that requires a gradient");
  }
  if (options_.init_sync) {
    check_same_parameters(model_.parameters, group_);
    std::vector<at::Tensor> values = tensors_only(model_.parameters);
    if (options_.broadcast_buffers || options_.forward_sync_buffers) {
      for (const at::Tensor& buffer : buffers()) values.push_back(buffer);
    }
    broadcast_values(values, group_);
  }
  make_delayed();
  make_reducer();
  if (options_.comm_hook) register_comm_hook(*options_.comm_hook);
}

DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::make_delayed() {
  const auto& [names, until] = options_.delay_all_reduce;
  if (names.empty() != until.empty())
    throw TrainError("DDP's delay_all_reduce needs both `names` and `until`");
  if (names.empty()) return;
  std::vector<at::Tensor> parameters;
  for (const std::string& name : names) parameters.push_back(find(model_.parameters, name));
  delayed_ = std::make_unique<DelayedAllReduce>(std::move(parameters),
                                                find(model_.parameters, until), group_);
}

void DistributedDataParallel::make_reducer() {
  const auto& delayed = options_.delay_all_reduce.names;
  std::vector<at::Tensor> parameters;
  std::vector<bool> is_sparse;
  std::unordered_map<std::size_t, std::string> names;
  for (const auto& [name, tensor] : model_.parameters) {
    if (!tensor.requires_grad() || std::ranges::count(delayed, name) > 0) continue;
    names[parameters.size()] = name;
    parameters.push_back(tensor);
    is_sparse.push_back(model_.sparse_gradients.contains(name));
  }
  if (!options_.buckets.empty() && !contains_each_once(options_.buckets, parameters.size())) {
    throw TrainError(formatted("the checkpoint's DDP buckets do not fit the model's {} parameters",
                               parameters.size()));
  }
  if (parameters.empty())
    throw TrainError(
        "DDP's delay_all_reduce names all parameters: leave at least one for the buckets");

  const BucketCaps caps(options_);
  BucketLayout buckets = options_.buckets;
  if (buckets.empty()) {
    buckets = std::get<0>(
        c10d::compute_bucket_assignment_by_size(parameters, caps.initial(options_), is_sparse));
    // Backward computes gradients in the reverse of the order in which the model was built.
    std::reverse(buckets.begin(), buckets.end());
  }
  // One rank has nothing to average, so its gradients are not copied into buckets; a hook may
  // change them all the same.
  if (group_.world_size() == 1 && !options_.comm_hook && !delayed_) return;
  const at::Device device = parameters.front().device();
  reducer_ = make_reducer_of_version<c10d::Reducer>(
      options_.batched_grad_copy, options_.lazy_bucket_allocation, parameters, std::move(buckets),
      group_.c10d(), is_sparse, caps.cap, options_.find_unused_parameters,
      options_.gradient_as_bucket_view, std::move(names), caps.first,
      options_.skip_all_reduce_unused_params, /*use_python_reducer=*/false, caps.list);
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  const std::vector<int> devices =
      device.is_cuda() ? std::vector<int>{device.index()} : std::vector<int>{};
  logger_->set_construction_data_and_log(
      model_.name, devices, devices.empty() ? -1 : devices.front(), broadcasts_in_forward(),
      model_.has_sync_batch_norm, options_.static_graph);
  if (options_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
}

void DistributedDataParallel::register_comm_hook(CommHook hook) {
  options_.comm_hook = hook;
  if (!reducer_) make_reducer();
  logger_->set_comm_hook(hook.name);
  reducer_->register_comm_hook(std::make_unique<Hook>(std::move(hook)));
}

void DistributedDataParallel::synchronize_buffers() {
  if (broadcasts_in_forward()) broadcast_values(buffers(), group_);
}

bool DistributedDataParallel::broadcasts_in_forward() const {
  return options_.forward_sync_buffers.value_or(options_.broadcast_buffers);
}

std::vector<at::Tensor> DistributedDataParallel::buffers() const {
  return tensors_only(model_.buffers);
}

bool DistributedDataParallel::synchronizes() const {
  return reducer_ && at::GradMode::is_enabled() && synchronize_;
}

bool DistributedDataParallel::is_due_to_broadcast_buffers() const {
  return broadcasts_in_forward() && buffers_current_ && !model_.buffers.empty();
}

void DistributedDataParallel::before_forward() {
  if (synchronizes()) {
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  if (const auto counting = notify_join(); counting && reducer_) {
    reducer_->set_forward_pass_work_handle(counting, join_options().divide_by_initial_world_size);
  }
  if (reducer_ && at::GradMode::is_enabled()) reducer_->rebuild_buckets();
  // With uneven inputs rank 0 may have no more of them, and its buffers are old then.
  if (is_due_to_broadcast_buffers())
    broadcast_values(buffers(), group_, is_joining() ? highest_rank(true) : 0);
  if (is_joining()) any_rank_synchronizes(true);
}

bool DistributedDataParallel::uses_outputs() const {
  if (!reducer_) return false;
  return options_.static_graph ? !*delay_queued_ : options_.find_unused_parameters;
}

bool DistributedDataParallel::after_forward(std::vector<at::Tensor>& outputs) {
  buffers_current_ = synchronizes();
  if (synchronizes()) {
    reducer_->prepare_for_backward(options_.static_graph ? std::vector<at::Tensor>{} : outputs);
  }
  const bool through = uses_outputs();
  if (through) {
    std::function<void()> on_backward;
    if (options_.static_graph) {
      // The first backward of a static graph shows which gradients there are; they are reduced
      // together after it.
      on_backward = [reducer = reducer_, queued = delay_queued_] {
        if (std::exchange(*queued, true)) return;
        torch::autograd::Engine::get_default_engine().queue_callback(
            [reducer] { reducer->delay_all_reduce(); });
      };
    }
    outputs = through_sink(std::move(outputs), std::move(on_backward));
  }
  if (delayed_) delayed_->begin_backward();
  return through;
}

BucketLayout DistributedDataParallel::buckets() {
  if (!reducer_) return options_.buckets;
  reducer_->rebuild_buckets();
  return logger_->get_per_bucket_variable_indices();
}

DdpLoggingData DistributedDataParallel::logging_data() {
  if (!logger_) return {};
  at::DDPLoggingData data = logger_->get_ddp_logging_data();
  return {std::move(data.strs_map), std::move(data.ints_map)};
}

void DistributedDataParallel::set_runtime_logging_sample_rate(int steps) {
  if (steps < 1)
    throw TrainError(formatted("DDP's sample rate of {} steps: expected 1 or more", steps));
  if (reducer_) reducer_->set_ddp_runtime_logging_sample_rate(steps);
}

}  // namespace torchbridge::train
