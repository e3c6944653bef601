#include <torchbridge/train/ddp.h>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <tuple>

namespace torchbridge::train {
namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;

std::vector<at::Tensor> trainable(const ModelTensors& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : model.parameters) {
    if (tensor.requires_grad()) parameters.push_back(tensor);
  }
  if (parameters.empty()) throw TrainError("the model has no parameter that requires a gradient");
  return parameters;
}

std::vector<at::Tensor> tensors_only(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor.detach());
  return tensors;
}

bool holds_each_once(const BucketLayout& layout, std::size_t count) {
  std::vector<std::size_t> indices;
  for (const auto& bucket : layout) indices.insert(indices.end(), bucket.begin(), bucket.end());
  std::sort(indices.begin(), indices.end());
  if (indices.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (indices[i] != i) return false;
  }
  return std::none_of(layout.begin(), layout.end(), [](const auto& bucket) { return bucket.empty(); });
}

// Before backward has shown the true order of gradients: one bucket, or, where unused parameters must be found, several.
BucketLayout initial_buckets(const std::vector<at::Tensor>& parameters, const DdpOptions& options, std::int64_t cap) {
  std::vector<std::size_t> limits = {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
  if (options.find_unused_parameters && !options.static_graph) {
    limits = {static_cast<std::size_t>(cap)};
    if (options.bucket_cap_is_default) limits.insert(limits.begin(), c10d::kDefaultFirstBucketBytes);
  }
  BucketLayout buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, limits, std::vector<bool>(parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(ModelTensors model, ProcessGroup& group, const DdpOptions& options)
    : model_(std::move(model)), group_(group), options_(options) {
  const std::vector<at::Tensor> parameters = trainable(model_);
  const auto& c10d_group = group_.c10d();
  c10d::verify_params_across_processes(c10d_group, parameters, std::nullopt);
  c10d::broadcast_coalesced(c10d_group, tensors_only(model_.all()), kBroadcastBytes);

  const auto cap = static_cast<std::int64_t>(options_.bucket_cap_mb * 1024 * 1024);
  if (!options_.buckets.empty() && !holds_each_once(options_.buckets, parameters.size())) {
    throw TrainError("the checkpoint's DDP buckets do not fit the model's " + std::to_string(parameters.size()) +
                     " parameters");
  }
  BucketLayout buckets = options_.buckets.empty() ? initial_buckets(parameters, options_, cap) : options_.buckets;
  reducer_ = std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), c10d_group, std::vector<bool>(parameters.size(), false), cap,
      options_.find_unused_parameters, options_.gradient_as_bucket_view, std::unordered_map<size_t, std::string>{},
      options_.bucket_cap_is_default ? c10d::kDefaultFirstBucketBytes : cap,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<std::int64_t>{});
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  logger_->set_construction_data_and_log("Model", {}, -1, options_.broadcast_buffers, false, options_.static_graph);
  if (options_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
}

DistributedDataParallel::~DistributedDataParallel() = default;

bool DistributedDataParallel::synchronizes() const { return at::GradMode::is_enabled() && synchronize_; }

void DistributedDataParallel::before_forward() {
  if (synchronizes()) {
    logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  if (at::GradMode::is_enabled()) reducer_->rebuild_buckets();
  if (options_.broadcast_buffers && buffers_current_) broadcast_buffers();
}

at::Tensor DistributedDataParallel::after_forward(at::Tensor output) {
  buffers_current_ = synchronizes();
  if (!synchronizes()) return output;
  if (options_.find_unused_parameters && !options_.static_graph) {
    reducer_->prepare_for_backward({output});
  } else {
    reducer_->prepare_for_backward({});
  }
  if (options_.static_graph && !delay_queued_) {
    // The first backward of a static graph shows which gradients come; only then are they reduced, all together.
    delay_queued_ = true;
    output.register_hook([reducer = reducer_](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([reducer] { reducer->delay_all_reduce(); });
    });
  }
  return output;
}

void DistributedDataParallel::broadcast_buffers() {
  if (model_.buffers.empty()) return;
  c10d::broadcast_coalesced(group_.c10d(), tensors_only(model_.buffers), kBroadcastBytes);
}

BucketLayout DistributedDataParallel::buckets() {
  reducer_->rebuild_buckets();
  return logger_->get_per_bucket_variable_indices();
}

}  // namespace torchbridge::train
