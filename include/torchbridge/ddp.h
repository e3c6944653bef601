// DistributedDataParallel: keeps a model equal on all ranks by averaging gradients while backward
// runs; its communication hooks, and join for uneven inputs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <torchbridge/errors.h>
#include <torchbridge/model_tensors.h>
#include <torchbridge/train_state.h>

namespace c10d {
class GradBucket;
class Logger;
class Reducer;
class Work;
}  // namespace c10d

namespace torchbridge::train {

class DelayedAllReduce;
class ProcessGroup;

// A communication hook: it reduces a bucket of gradients over the ranks instead of DDP's own
// all-reduce. `run` is called in backward as soon as the bucket's gradients are complete, in the
// same order on all ranks. It starts the reduction and returns a future of the reduced tensor, of
// the same size and type as bucket.getBuffer(). Work may be chained to it with then(), which runs
// on a thread of the group's backend. backward() throws an exception of `run` or of the future.
// <torch/csrc/distributed/c10d/comm.hpp> has the bucket.
struct CommHook {
  std::string name;  // in DistributedDataParallel::logging_data
  std::function<c10::intrusive_ptr<c10::ivalue::Future>(c10d::GradBucket& bucket)> run;
};

// Python's hooks of the same names (torch.distributed.algorithms.ddp_comm_hooks.default_hooks),
// equal bit for bit. c10d's own C++ hooks cannot be composed, and there is none for bf16. The group
// must outlive the model that uses them.
CommHook allreduce_hook(ProcessGroup& group);
// Halve the bytes that are sent: cast, divide by the world size, sum, cast back.
CommHook fp16_compress_hook(ProcessGroup& group);
CommHook bf16_compress_hook(ProcessGroup& group);
// The same around another hook, which then sees a bucket of that type.
CommHook fp16_compress_wrapper(CommHook hook);
CommHook bf16_compress_wrapper(CommHook hook);

// Training with uneven inputs: ranks without more inputs take part in the others' collectives until
// all ranks are done.

// Python's torch.distributed.algorithms.Join.
struct JoinOptions {
  // Divides gradients by the initial world size, so that each sample has the same weight; else by
  // the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;
  bool enable = true;
  // When one rank has no more inputs all ranks throw InputsExhausted instead of continuing without
  // it.
  bool throw_on_early_termination = false;
};

struct InputsExhausted : TrainError {
  using TrainError::TrainError;
};

// An object with collectives in each iteration of a training loop, such as DDP.
class Joinable {
 public:
  virtual ~Joinable() = default;

 protected:
  // To be called before an iteration's own collectives. Returns the all-reduce that counts the
  // ranks with inputs, or nothing outside of join() and for all but the first of its joinables.
  c10::intrusive_ptr<c10d::Work> notify_join();
  const JoinOptions& join_options() const { return options_; }
  bool is_joining() const { return group_ != nullptr; }

 private:
  friend void join(const std::vector<Joinable*>&, ProcessGroup&, const JoinOptions&,
                   const std::function<void()>&);

  // Throws TrainError when the object cannot be used within join().
  virtual void begin_join() = 0;
  // The device of the collectives' tensors.
  virtual c10::Device join_device() const = 0;
  // Collective. Makes an iteration's collectives on a rank without inputs.
  virtual void shadow_iteration() = 0;
  // Collective, once, when no rank has more inputs; `was_last` on the ranks that had inputs
  // longest.
  virtual void all_joined(bool was_last) = 0;

  JoinOptions options_;
  ProcessGroup* group_ = nullptr;  // within join()
  bool notifies_ = false;
};

// Runs `train`, a training loop whose number of iterations may differ between the ranks, and
// returns when all ranks have finished it. An iteration is one forward pass of each of the
// joinables, in the order given here. An exception of `train` leaves join() at once. The loop must
// contain no other collectives, also no SyncBatchNorm, unless throw_on_early_termination is set.
void join(const std::vector<Joinable*>& joinables, ProcessGroup& group, const JoinOptions& options,
          const std::function<void()>& train);

// visit_tensors(output, visit) calls visit(at::Tensor&) for each defined tensor, always in the same
// order; `visit` may replace it. Output may be a tensor, a number, a string, a c10::IValue (what
// TorchScript returns), or any nest of vector, array, pair, tuple, optional and map of these. For a
// struct of your own, declare a function of this name in its namespace:
//
//   template <class Visit>
//   void visit_tensors(MyOutput& output, Visit&& visit) { visit(output.logits);
//   visit(output.hidden); }
template <class Visit>
void visit_tensors(at::Tensor& tensor, Visit&& visit) {
  if (tensor.defined()) visit(tensor);
}

template <class T, class Visit>
requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>
void visit_tensors(T&, Visit&&) {}

template <class Visit>
void visit_tensors(c10::IValue& value, Visit&& visit);
template <class T, class Visit>
void visit_tensors(std::vector<T>& list, Visit&& visit);
template <class T, std::size_t N, class Visit>
void visit_tensors(std::array<T, N>& list, Visit&& visit);
template <class T, class Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit);
template <class A, class B, class Visit>
void visit_tensors(std::pair<A, B>& pair, Visit&& visit);
template <class... Ts, class Visit>
void visit_tensors(std::tuple<Ts...>& tuple, Visit&& visit);
template <class K, class V, class Visit>
void visit_tensors(std::map<K, V>& map, Visit&& visit);
// No unordered map: its order may differ between two visits.

template <class T, class Visit>
void visit_tensors(std::vector<T>& list, Visit&& visit) {
  if constexpr (!std::is_same_v<T, bool>) {
    for (T& element : list) visit_tensors(element, visit);
  }
}

template <class T, std::size_t N, class Visit>
void visit_tensors(std::array<T, N>& list, Visit&& visit) {
  for (T& element : list) visit_tensors(element, visit);
}

template <class T, class Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit) {
  if (value) visit_tensors(*value, visit);
}

template <class A, class B, class Visit>
void visit_tensors(std::pair<A, B>& pair, Visit&& visit) {
  visit_tensors(pair.first, visit);
  visit_tensors(pair.second, visit);
}

template <class... Ts, class Visit>
void visit_tensors(std::tuple<Ts...>& tuple, Visit&& visit) {
  std::apply([&](Ts&... elements) { (visit_tensors(elements, visit), ...); }, tuple);
}

template <class K, class V, class Visit>
void visit_tensors(std::map<K, V>& map, Visit&& visit) {
  for (auto& [key, value] : map) visit_tensors(value, visit);
}

template <class Visit>
void visit_tensors(c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    visit_tensors(tensor, visit);
    value = tensor;
  } else if (value.isTuple()) {
    std::vector<c10::IValue> elements = value.toTupleRef().elements().vec();
    visit_tensors(elements, visit);
    value.toTuple()->setElements(std::move(elements));
  } else if (value.isList()) {
    auto list = value.toList();
    for (std::size_t i = 0; i < list.size(); ++i) {
      c10::IValue element = list.get(i);
      visit_tensors(element, visit);
      list.set(i, std::move(element));
    }
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    for (auto& entry : dict) {
      c10::IValue element = entry.value();
      visit_tensors(element, visit);
      entry.setValue(std::move(element));
    }
  }
}

// Parameters whose gradients are reduced together, outside of the buckets, when the gradient of
// `until` is ready.
struct DelayedParameters {
  std::vector<std::string> names;
  std::string until;
};

// Names and defaults are Python's.
struct DdpOptions {
  // MiB of a bucket; not set: 25, and 1 for the first bucket.
  std::optional<double> bucket_cap_mb = {};
  // Instead: MiB of the first bucket, the second ...; the last value is also for all that follow.
  std::vector<double> bucket_cap_mb_list = {};
  bool gradient_as_bucket_view = false;  // saves a copy of the gradients
  // Some outputs may not depend on all parameters, or not be part of the loss.
  bool find_unused_parameters = false;
  bool static_graph = false;      // each step uses the same parameters
  bool broadcast_buffers = true;  // rank 0's, at the start and before each forward pass
  // Instead, where it is set: whether before each forward pass; at the start init_sync gives them
  // to all ranks.
  std::optional<bool> forward_sync_buffers = {};
  // Check parameters and take rank 0's values; without it they must be equal already.
  bool init_sync = true;
  // With find_unused_parameters: a bucket that no rank used is not reduced.
  bool skip_all_reduce_unused_params = false;
  // Copies all gradients of a bucket at once, and divides the bucket instead of each (libtorch 2.12
  // and newer).
  bool batched_grad_copy = false;
  // A bucket has memory only during backward (libtorch 2.15 and newer).
  bool lazy_bucket_allocation = false;
  std::set<std::string> ignore = {};  // names of parameters and buffers that DDP does not touch
  DelayedParameters delay_all_reduce = {};
  std::optional<CommHook> comm_hook = {};  // registered by the constructor
  // From a checkpoint of the same model, so that the first step already sums in the order of the
  // run before.
  BucketLayout buckets = {};
};

// The data of c10d's Logger: settings, sizes of the buckets, and times in ns of the steps that it
// sampled. The names are Python's (DDPLoggingData): avg_backward_compute_comm_overlap_time ...
struct DdpLoggingData {
  std::map<std::string, std::string> strings;
  std::map<std::string, std::int64_t> numbers;
};

// The engine of Python's class of the same name (c10d::Reducer), called in the same order, so
// losses are equal bit for bit. One thread; the group must outlive it. `model` shares memory with
// the module, which is used as before, inside forward().
class DistributedDataParallel : public Joinable {
 public:
  // Collective: checks that all ranks have the same parameters and takes the values of rank 0.
  DistributedDataParallel(ModelTensors model, ProcessGroup& group, DdpOptions options = {});
  ~DistributedDataParallel() override;
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the model's forward pass and returns its output: ddp.forward(model, x), for a torch::nn
  // holder or a torch::jit module, or ddp.forward([&] { return model->forward(x, mask); }).
  // visit_tensors() lists the types of output. With gradients on, the backward pass that follows
  // reduces over the ranks.
  template <class Forward, class... Arguments>
  auto forward(Forward&& run, Arguments&&... arguments) {
    before_forward();
    auto output = std::invoke(std::forward<Forward>(run), std::forward<Arguments>(arguments)...);
    std::vector<at::Tensor> tensors;
    if (uses_outputs())
      visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
    if (after_forward(tensors)) {
      visit_tensors(output,
                    [next = tensors.begin()](at::Tensor& tensor) mutable { tensor = *next++; });
    }
    return output;
  }

  // While one is alive, backward only adds to the local gradients: for all micro-batches of a step
  // but the last. The forward pass must be inside as well.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp, bool is_on = true)
        : ddp_(ddp), before_(ddp.synchronize_) {
      ddp.synchronize_ = before_ && !is_on;
    }
    ~NoSync() { ddp_.synchronize_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };

  // A NoSync that has no effect where `synchronizes` is true.
  NoSync no_sync_unless(bool synchronizes) { return NoSync(*this, !synchronizes); }

  // Collective: gives all ranks the buffers of rank 0, unless broadcast_buffers is off. For an
  // evaluation, which calls the model without DDP.
  void synchronize_buffers();

  // Once, before the first backward, on all ranks the same.
  void register_comm_hook(CommHook hook);

  // Collective, between backward and the next forward: the layout that the next step will use.
  BucketLayout buckets();
  // Of the constructor, without those to ignore. `buckets` number its parameters that require a
  // gradient.
  const ModelTensors& model() const { return model_; }

  DdpLoggingData logging_data();
  // Which steps are timed: the first ten, then each `steps`-th (100). Timing costs a few
  // microseconds.
  void set_runtime_logging_sample_rate(int steps);

 private:
  void make_delayed();
  void make_reducer();
  std::vector<at::Tensor> buffers() const;

  void before_forward();
  bool uses_outputs() const;
  // True when it has replaced the tensors in `outputs`.
  bool after_forward(std::vector<at::Tensor>& outputs);
  bool synchronizes() const;
  bool broadcasts_in_forward() const;
  bool is_due_to_broadcast_buffers() const;

  // ddp_join.cpp
  void begin_join() override;
  at::Device join_device() const override;
  void shadow_iteration() override;
  void all_joined(bool was_last) override;
  int highest_rank(bool is_candidate);
  bool any_rank_synchronizes(bool has_inputs);

  ModelTensors model_;  // without the ignored tensors
  ProcessGroup& group_;
  DdpOptions options_;
  bool synchronize_ = true;
  bool buffers_current_ = true;  // Python's require_forward_param_sync
  std::shared_ptr<bool> delay_queued_ = std::make_shared<bool>(false);
  std::unique_ptr<DelayedAllReduce> delayed_;
  std::shared_ptr<c10d::Reducer> reducer_;  // none with one rank and no hook
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace torchbridge::train
