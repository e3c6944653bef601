#include "backends/mpi/mpi_backend.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "backends/mpi/mpi_thread.h"
#include "backends/mpi/reductions.h"
#include "backends/mpi/work.h"

namespace torchbridge::mpi {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
// Below autograd: a backend changes neither the graph nor version counters.
using Raw = at::AutoDispatchBelowADInplaceOrView;

constexpr int kCreateTag = 0;

// Large reductions are divided into parts, all in progress at once: MPI then reduces one while it
// moves another, and its scratch memory stays in the cache. docs/use/mpi.md has the measurements.
constexpr std::int64_t kReducedBytes = 256 << 10;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

char* memory_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return memory_of(a) < memory_of(b) + bytes_of(b) && memory_of(b) < memory_of(a) + bytes_of(a);
}

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided,
              "the mpi backend takes dense tensors only; use to_dense(), or gloo for sparse ones");
  if (tensor.is_cpu()) return;
  TORCH_CHECK(tensor.is_cuda(),
              "the mpi backend takes tensors on the CPU and, where MPI supports them, on CUDA "
              "devices; this one is on ",
              tensor.device());
  static const bool taken = takes_cuda_memory();
  TORCH_CHECK(taken,
              "this MPI does not support CUDA memory: copy the tensor to the CPU, use nccl for "
              "CUDA tensors "
              "(cpu:mpi,cuda:nccl), or build against a CUDA-aware MPI");
}

void check_tensors(const Tensors& tensors) {
  TORCH_CHECK(!tensors.empty(), "the list of tensors is empty");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    TORCH_CHECK_TYPE(
        tensor.scalar_type() == tensors[0].scalar_type() && tensor.device() == tensors[0].device(),
        "all tensors of one operation must have one type and device, got ",
        tensors[0].scalar_type(), " on ", tensors[0].device(), " and ", tensor.scalar_type(),
        " on ", tensor.device());
  }
}

const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "expected one tensor, got ", tensors.size());
  check_tensors(tensors);
  return tensors[0];
}

template <class Lists>
const auto& only_list(const Lists& lists) {
  TORCH_CHECK(lists.size() == 1, "expected one list of tensors, got ", lists.size());
  return lists[0];
}

// One tensor a rank, each as large as `tensor` and of its type.
void check_one_a_rank(const Tensors& list, const at::Tensor& tensor, int size) {
  TORCH_CHECK(static_cast<int>(list.size()) == size, "expected ", size,
              " tensors, one a rank, got ", list.size());
  check_tensors(list);
  for (const at::Tensor& other : list) {
    TORCH_CHECK(other.numel() == tensor.numel() && other.scalar_type() == tensor.scalar_type(),
                "expected tensors of ", tensor.numel(), " elements of ", tensor.scalar_type(),
                ", got ", other.numel(), " of ", other.scalar_type());
  }
}

void check_multiple(const at::Tensor& large, const at::Tensor& small, int size) {
  check_tensors({large, small});
  TORCH_CHECK(large.numel() == small.numel() * size, "expected ", size, " times the ",
              small.numel(), " elements, got ", large.numel());
}

// The memory that MPI reads: the tensor itself where it is contiguous, else a copy.
at::Tensor readable(const at::Tensor& tensor) {
  const Raw raw;
  return is_plain(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
}

// The memory that MPI writes; copy_back copies it to the tensor.
at::Tensor writable(const at::Tensor& tensor) {
  const Raw raw;
  return is_plain(tensor) ? tensor
                          : at::empty(tensor.sizes(),
                                      tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

// The elements of all, one after the other.
at::Tensor joined(const Tensors& list) {
  if (list.size() == 1) return readable(list[0]);
  const Raw raw;
  Tensors flat;
  for (const at::Tensor& tensor : list) flat.push_back(readable(tensor).reshape({-1}));
  return at::cat(flat);
}

at::Tensor output_for(const Tensors& list) {
  if (list.size() == 1) return writable(list[0]);
  const Raw raw;
  std::int64_t count = 0;
  for (const at::Tensor& tensor : list) count += tensor.numel();
  return at::empty({count}, list[0].options().memory_format(at::MemoryFormat::Contiguous));
}

void copy_back(const at::Tensor& memory, const Tensors& list) {
  if (list.size() == 1 && memory.is_same(list[0])) return;
  const Raw raw;
  std::int64_t begin = 0;
  const at::Tensor flat = memory.reshape({-1});
  for (const at::Tensor& tensor : list) {
    const_cast<at::Tensor&>(tensor).copy_(
        flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

// MPI's operators run on the CPU, so what is reduced is there.
at::Tensor on_host(const at::Tensor& tensor) {
  const Raw raw;
  return tensor.is_cuda() ? tensor.cpu() : tensor;
}

void premultiply(at::Tensor& memory, const c10d::ReduceOp& op) {
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(factor, "PREMUL_SUM needs a factor");
  const Raw raw;
  memory = factor->tensor_factor.defined() ? memory.mul(on_host(factor->tensor_factor))
                                           : memory.mul(factor->double_factor);
}

// The memory to reduce: the tensors' own where it is contiguous and the values need no change
// before, else a copy.
at::Tensor to_reduce(const Tensors& list, const c10d::ReduceOp& op) {
  check_reduction(op.op_, list[0].scalar_type());
  at::Tensor memory = on_host(joined(list));
  if (op.op_ == c10d::ReduceOp::PREMUL_SUM) premultiply(memory, op);
  return memory;
}

void average(at::Tensor memory, int size) {
  const Raw raw;
  if (c10::isIntegralType(memory.scalar_type(), false)) {
    memory.div_(size, "trunc");
  } else {
    memory.div_(size);
  }
}

// Calls run(offset, count) for parts of at most `largest` elements.
template <class Run>
void in_parts(std::int64_t count, std::int64_t largest, Run&& run) {
  for (std::int64_t begin = 0; begin < count; begin += largest) {
    run(begin, static_cast<int>(std::min(largest, count - begin)));
  }
}

template <class Run>
void in_reduced_parts(const at::Tensor& memory, std::int64_t largest, Run&& run) {
  in_parts(memory.numel(),
           std::min(largest, kReducedBytes / static_cast<std::int64_t>(memory.element_size())),
           run);
}

void synchronize(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  device.synchronizeStream(device.getStream(tensor.device()));
}

std::exception_ptr for_python(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error&) {
    return error;
  } catch (const std::exception& other) {
    return std::make_exception_ptr(
        c10::DistBackendError({__func__, __FILE__, __LINE__}, other.what()));
  }
}

std::shared_ptr<Communicator> subset(const std::shared_ptr<Communicator>& parent,
                                     const std::vector<int>& ranks,
                                     std::chrono::milliseconds timeout) {
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  TORCH_CHECK(std::ranges::adjacent_find(sorted) == sorted.end() && sorted.front() >= 0 &&
                  sorted.back() < parent->size,
              "the ranks of a group must differ and be below ", parent->size);
  if (!std::ranges::binary_search(sorted, parent->rank)) return nullptr;
  auto made = std::make_shared<std::shared_ptr<Communicator>>();
  MpiThread::instance().run(
      "forming a group of " + std::to_string(ranks.size()) + " MPI ranks", timeout,
      [parent, ranks, made] {
        MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
        check("MPI_Comm_group", MPI_Comm_group(parent->handle, &all));
        check("MPI_Group_incl",
              MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some));
        MPI_Comm group = MPI_COMM_NULL;
        check("MPI_Comm_create_group",
              MPI_Comm_create_group(parent->handle, some, kCreateTag, &group));
        *made = MpiThread::instance().own(group);
        MPI_Group_free(&some);
        MPI_Group_free(&all);
      });
  return *made;
}

}  // namespace

struct MpiBackend::WorkDescription {
  OpType type;
  const char* title;
  std::chrono::milliseconds timeout;
  Tensors inputs;
  TensorLists outputs;
};

// One part of an operation; all parts are posted together. On MPI's thread.
struct MpiBackend::Step {
  std::function<void(Requests&)> post;
  // Called when all requests have completed; returns the sender of a receive from any source, else
  // -1.
  std::function<int(const std::vector<MPI_Status>&)> finish = [](const auto&) { return -1; };
};

c10::intrusive_ptr<MpiBackend> MpiBackend::create(c10::intrusive_ptr<MpiOptions> options) {
  try {
    auto communicator = MpiThread::instance().world(options->timeout);
    std::vector<int> ranks(options->global_ranks_in_group.begin(),
                           options->global_ranks_in_group.end());
    if (ranks.empty()) {
      ranks.resize(static_cast<std::size_t>(communicator->size));
      std::iota(ranks.begin(), ranks.end(), 0);
      // c10d's recorder of collectives asks for them (libtorch 2.15), and warns where there are
      // none.
      options->global_ranks_in_group.assign(ranks.begin(), ranks.end());
    }
    communicator = subset(communicator, ranks, options->timeout);
    if (!communicator) return {};
    return c10::make_intrusive<MpiBackend>(std::move(communicator), std::move(options));
  } catch (...) {
    std::rethrow_exception(for_python(std::current_exception()));
  }
}

MpiBackend::MpiBackend(std::shared_ptr<Communicator> communicator,
                       c10::intrusive_ptr<MpiOptions> options)
    : Backend(communicator->rank, communicator->size),
      communicator_(std::move(communicator)),
      options_(std::move(options)) {
  communicator_->largest_count = options_->largest_count;
}

c10::intrusive_ptr<c10d::Backend> MpiBackend::split(const c10::intrusive_ptr<c10d::Store>&,
                                                    const std::vector<int>& ranks,
                                                    const c10::intrusive_ptr<Options>& options) {
  TORCH_CHECK(!ranks.empty(), "a group needs a rank");
  auto own = c10::make_intrusive<MpiOptions>(*options_);
  if (options) own->timeout = options->timeout;
  auto communicator = subset(communicator_, ranks, own->timeout);
  if (!communicator) return {};
  own->global_ranks_in_group.clear();
  for (const int rank : ranks)
    own->global_ranks_in_group.push_back(options_->global_ranks_in_group.at(rank));
  return c10::make_intrusive<MpiBackend>(std::move(communicator), std::move(own));
}

void MpiBackend::shutdown() { MpiThread::instance().release_ended(); }

void MpiBackend::abort() { MpiThread::instance().abort(communicator_, "the group was aborted"); }

MpiBackend::Work MpiBackend::start(WorkDescription call, std::vector<Step> steps) {
  const bool is_message = c10d::isP2POp(call.type);
  const std::uint64_t number = is_message ? sequence_.load() : ++sequence_;
  auto work =
      c10::make_intrusive<MpiWork>(rank_, call.type, number, call.title, call.inputs, call.outputs);
  for (const at::Tensor& input : call.inputs) synchronize(input);

  const auto timeout = call.timeout.count() > 0 ? call.timeout : options_->timeout;
  auto shared = std::make_shared<std::vector<Step>>(std::move(steps));
  Operation operation;
  operation.communicator = communicator_;
  operation.what = std::string(call.title) +
                   (is_message ? "" : " number " + std::to_string(number)) + " of rank " +
                   std::to_string(rank_);
  operation.timeout = timeout;
  operation.collective = !is_message;
  operation.deadline = std::chrono::steady_clock::now() + timeout;
  operation.post = [shared](Requests& requests) {
    for (const Step& step : *shared) step.post(requests);
  };
  // Holds the tensors of the call.
  operation.done = [shared, work, call = std::move(call)](std::exception_ptr error,
                                                          const std::vector<MPI_Status>& statuses) {
    int source = -1;
    try {
      if (error) std::rethrow_exception(error);
      for (const Step& step : *shared) source = step.finish(statuses);
      for (const auto& list : call.outputs) {
        for (const at::Tensor& output : list) synchronize(output);
      }
    } catch (...) {
      error = for_python(std::current_exception());
    }
    work->complete(error, source);
  };
  try {
    MpiThread::instance().submit(std::move(operation));
  } catch (...) {
    std::rethrow_exception(for_python(std::current_exception()));
  }
  return work;
}

void MpiBackend::check_rank(std::int64_t rank, const char* what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size_, what, " is rank ", rank, ", but the group has ",
                    size_, " ranks");
}

void MpiBackend::check_tag(int tag) const {
  TORCH_CHECK_VALUE(tag >= 0 && tag < communicator_->largest_tag, "the tag is ", tag,
                    ", but this MPI allows 0 to ", communicator_->largest_tag - 1);
}

MpiBackend::Work MpiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors);
  check_rank(options.rootRank, "the root of broadcast");
  const at::Tensor memory = readable(tensor);
  const int root = static_cast<int>(options.rootRank);
  return start({OpType::BROADCAST, "mpi:broadcast", options.timeout, tensors, {tensors}},
               {{[=, group = communicator_](Requests& mpi) {
                   const ByteCount bytes(bytes_of(memory), group->largest_count);
                   mpi("MPI_Ibcast", MPI_Ibcast, memory.data_ptr(), bytes.count, bytes.type, root,
                       group->handle);
                 },
                 [=](const auto&) {
                   copy_back(memory, {tensor});
                   return -1;
                 }}});
}

MpiBackend::Work MpiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  only(tensors);
  return reduce_all(tensors, options, OpType::ALLREDUCE);
}

MpiBackend::Work MpiBackend::allreduce_coalesced(Tensors& tensors,
                                                 const c10d::AllreduceCoalescedOptions& options) {
  check_tensors(tensors);
  return reduce_all(tensors, options, OpType::ALLREDUCE_COALESCED);
}

MpiBackend::Work MpiBackend::reduce_all(const Tensors& tensors,
                                        const c10d::AllreduceOptions& options, OpType type) {
  const at::Tensor memory = to_reduce(tensors, options.reduceOp);
  const auto op = options.reduceOp.op_;
  return start({type, "mpi:all_reduce", options.timeout, tensors, {tensors}},
               {{[=, group = communicator_](Requests& mpi) {
                   const Reduction reduction = reduction_of(op, memory.scalar_type());
                   in_reduced_parts(memory, group->largest_count,
                                    [&](std::int64_t begin, int count) {
                                      mpi("MPI_Iallreduce", MPI_Iallreduce, MPI_IN_PLACE,
                                          memory_of(memory) + begin * memory.element_size(), count,
                                          reduction.type, reduction.op, group->handle);
                                    });
                 },
                 [=, size = size_](const auto&) {
                   if (op == c10d::ReduceOp::AVG) average(memory, size);
                   copy_back(memory, tensors);
                   return -1;
                 }}});
}

MpiBackend::Work MpiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors);
  check_rank(options.rootRank, "the root of reduce");
  const int root = static_cast<int>(options.rootRank);
  const bool is_root = root == rank_;
  const at::Tensor memory = to_reduce(tensors, options.reduceOp);
  const auto op = options.reduceOp.op_;
  return start(
      {OpType::REDUCE, "mpi:reduce", options.timeout, tensors, {tensors}},
      {{[=, group = communicator_](Requests& mpi) {
          const Reduction reduction = reduction_of(op, memory.scalar_type());
          in_reduced_parts(memory, group->largest_count, [&](std::int64_t begin, int count) {
            char* part = memory_of(memory) + begin * memory.element_size();
            mpi("MPI_Ireduce", MPI_Ireduce, is_root ? MPI_IN_PLACE : part, is_root ? part : nullptr,
                count, reduction.type, reduction.op, root, group->handle);
          });
        },
        [=, size = size_](const auto&) {
          if (is_root && op == c10d::ReduceOp::AVG) average(memory, size);
          if (is_root) copy_back(memory, {tensor});
          return -1;
        }}});
}

// `output` and `input` are contiguous. The input may be the rank's own part of the output, as FSDP
// has it.
MpiBackend::Step MpiBackend::allgather_step(const at::Tensor& output, const at::Tensor& input) {
  const bool in_place = memory_of(input) == memory_of(output) + rank_ * bytes_of(input);
  return {[=, group = communicator_](Requests& mpi) {
    const ByteCount bytes(bytes_of(input), group->largest_count);
    mpi("MPI_Iallgather", MPI_Iallgather, in_place ? MPI_IN_PLACE : input.data_ptr(), bytes.count,
        bytes.type, output.data_ptr(), bytes.count, bytes.type, group->handle);
  }};
}

MpiBackend::Work MpiBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  only(inputs);
  only_list(outputs);
  return allgather_coalesced(outputs, inputs, options);
}

MpiBackend::Work MpiBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& options) {
  // Python gives one list a rank for several inputs, and one list for one input.
  const bool by_rank = inputs.size() > 1;
  TORCH_CHECK(!inputs.empty() && outputs.size() == (by_rank ? static_cast<std::size_t>(size_) : 1),
              "expected ", by_rank ? size_ : 1, " lists of output tensors, got ", outputs.size());
  std::vector<Step> steps;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (int rank = 0; rank < size_; ++rank) {
      const Tensors& row = by_rank ? outputs[static_cast<std::size_t>(rank)] : outputs[0];
      const std::size_t column = by_rank ? i : static_cast<std::size_t>(rank);
      TORCH_CHECK(column < row.size(), "a list of output tensors has ", row.size(),
                  " entries: too few");
      list.push_back(row[column]);
    }
    check_tensor(inputs[i]);
    check_one_a_rank(list, inputs[i], size_);
    const at::Tensor memory = output_for(list);
    Step step = allgather_step(memory, readable(inputs[i]));
    step.finish = [=](const auto&) {
      copy_back(memory, list);
      return -1;
    };
    steps.push_back(std::move(step));
  }
  return start({by_rank ? OpType::ALLGATHER_COALESCED : OpType::ALLGATHER, "mpi:all_gather",
                options.timeout, inputs, outputs},
               std::move(steps));
}

MpiBackend::Work MpiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& options) {
  Tensors outputs = {output}, inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

MpiBackend::Work MpiBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "expected one output for each of the ", inputs.size(), " inputs");
  std::vector<Step> steps;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor output = outputs[i];
    check_multiple(output, inputs[i], size_);
    const at::Tensor memory = writable(output);
    Step step = allgather_step(memory, readable(inputs[i]));
    step.finish = [=](const auto&) {
      copy_back(memory, {output});
      return -1;
    };
    steps.push_back(std::move(step));
  }
  return start({inputs.size() > 1 ? OpType::COALESCED : OpType::_ALLGATHER_BASE,
                "mpi:_all_gather_base",
                options.timeout,
                inputs,
                {outputs}},
               std::move(steps));
}

MpiBackend::Work MpiBackend::gather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs);
  check_rank(options.rootRank, "the root of gather");
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  if (root == rank_) {
    list = only_list(outputs);
    check_one_a_rank(list, input, size_);
  } else {
    TORCH_CHECK(outputs.empty(), "outputs must be empty on all ranks but the root of gather");
  }
  const at::Tensor source = readable(input),
                   memory = list.empty() ? at::Tensor() : output_for(list);
  return start({OpType::GATHER, "mpi:gather", options.timeout, inputs, outputs},
               {{[=, group = communicator_](Requests& mpi) {
                   const ByteCount bytes(bytes_of(source), group->largest_count);
                   mpi("MPI_Igather", MPI_Igather, source.data_ptr(), bytes.count, bytes.type,
                       memory.defined() ? memory.data_ptr() : nullptr, bytes.count, bytes.type,
                       root, group->handle);
                 },
                 [=](const auto&) {
                   if (memory.defined()) copy_back(memory, list);
                   return -1;
                 }}});
}

MpiBackend::Work MpiBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                     const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  check_rank(options.rootRank, "the root of scatter");
  const int root = static_cast<int>(options.rootRank);
  at::Tensor source;
  if (root == rank_) {
    check_one_a_rank(only_list(inputs), output, size_);
    source = joined(inputs[0]);
  } else {
    TORCH_CHECK(inputs.empty(), "inputs must be empty on all ranks but the root of scatter");
  }
  const at::Tensor memory = source.defined() && overlap(source, output)
                                ? at::empty_like(output, at::MemoryFormat::Contiguous)
                                : writable(output);
  return start({OpType::SCATTER,
                "mpi:scatter",
                options.timeout,
                inputs.empty() ? Tensors() : inputs[0],
                {outputs}},
               {{[=, group = communicator_](Requests& mpi) {
                   const ByteCount bytes(bytes_of(memory), group->largest_count);
                   mpi("MPI_Iscatter", MPI_Iscatter, source.defined() ? source.data_ptr() : nullptr,
                       bytes.count, bytes.type, memory.data_ptr(), bytes.count, bytes.type, root,
                       group->handle);
                 },
                 [=](const auto&) {
                   copy_back(memory, {output});
                   return -1;
                 }}});
}

// `input` is contiguous and holds the part of each rank one after the other.
MpiBackend::Step MpiBackend::reduce_scatter_step(const at::Tensor& output, const at::Tensor& input,
                                                 const c10d::ReduceOp& operation) {
  const Raw raw;
  const bool own = output.is_cuda() || !is_plain(output) || overlap(input, output);
  const at::Tensor memory =
      own ? at::empty(output.sizes(), input.options().memory_format(at::MemoryFormat::Contiguous))
          : output;
  const auto op = operation.op_;
  return {[=, group = communicator_](Requests& mpi) {
            const Reduction reduction = reduction_of(op, memory.scalar_type());
            const auto size = static_cast<std::int64_t>(memory.element_size());
            if (memory.numel() <= group->largest_count) {
              mpi("MPI_Ireduce_scatter_block", MPI_Ireduce_scatter_block, input.data_ptr(),
                  memory.data_ptr(), static_cast<int>(memory.numel()), reduction.type, reduction.op,
                  group->handle);
              return;
            }
            for (int root = 0; root < group->size; ++root) {
              in_parts(memory.numel(), group->largest_count, [&](std::int64_t begin, int count) {
                mpi("MPI_Ireduce", MPI_Ireduce,
                    memory_of(input) + (root * memory.numel() + begin) * size,
                    memory_of(memory) + begin * size, count, reduction.type, reduction.op, root,
                    group->handle);
              });
            }
          },
          [=, ranks = size_](const auto&) {
            if (op == c10d::ReduceOp::AVG) average(memory, ranks);
            copy_back(memory, {output});
            return -1;
          }};
}

MpiBackend::Work MpiBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                            const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs);
  check_one_a_rank(only_list(inputs), output, size_);
  return start(
      {OpType::REDUCE_SCATTER, "mpi:reduce_scatter", options.timeout, inputs[0], {outputs}},
      {reduce_scatter_step(output, to_reduce(inputs[0], options.reduceOp), options.reduceOp)});
}

MpiBackend::Work MpiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::ReduceScatterOptions& options) {
  Tensors outputs = {output}, inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

MpiBackend::Work MpiBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size() && !inputs.empty(),
              "expected one output for each of the ", inputs.size(), " inputs");
  std::vector<Step> steps;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_multiple(inputs[i], outputs[i], size_);
    steps.push_back(reduce_scatter_step(outputs[i], to_reduce({inputs[i]}, options.reduceOp),
                                        options.reduceOp));
  }
  return start({inputs.size() > 1 ? OpType::COALESCED : OpType::_REDUCE_SCATTER_BASE,
                "mpi:_reduce_scatter_base",
                options.timeout,
                inputs,
                {outputs}},
               std::move(steps));
}

// One message to and one from each rank, of any size: MPI_Alltoallv counts in ints, and no rank has
// the counts of another, which may exceed them.
MpiBackend::Step MpiBackend::pairs_step(const Tensors& outputs, const Tensors& inputs) {
  return {[=, group = communicator_](Requests& mpi) {
    for (int i = 0; i < group->size; ++i) {
      const int from = (group->rank + group->size - i) % group->size;
      const at::Tensor& output = outputs[static_cast<std::size_t>(from)];
      const ByteCount bytes(bytes_of(output), group->largest_count);
      mpi("MPI_Irecv", MPI_Irecv, output.data_ptr(), bytes.count, bytes.type, from,
          group->largest_tag, group->handle);
    }
    for (int i = 0; i < group->size; ++i) {
      const int to = (group->rank + i) % group->size;
      const at::Tensor& input = inputs[static_cast<std::size_t>(to)];
      const ByteCount bytes(bytes_of(input), group->largest_count);
      mpi("MPI_Isend", MPI_Isend, input.data_ptr(), bytes.count, bytes.type, to, group->largest_tag,
          group->handle);
    }
  }};
}

MpiBackend::Work MpiBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllToAllOptions& options) {
  check_tensors(inputs);
  check_tensors(outputs);
  TORCH_CHECK(outputs.size() == inputs.size() && static_cast<int>(inputs.size()) == size_,
              "expected ", size_, " inputs and outputs, one a rank, got ", inputs.size(), " and ",
              outputs.size());
  Tensors sources, rooms;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    sources.push_back(readable(inputs[i]));
    const bool shared = std::ranges::any_of(
        inputs, [&](const at::Tensor& input) { return overlap(input, outputs[i]); });
    rooms.push_back(shared ? at::empty_like(outputs[i], at::MemoryFormat::Contiguous)
                           : writable(outputs[i]));
  }
  Step step = pairs_step(rooms, sources);
  step.finish = [=](const auto&) {
    for (std::size_t i = 0; i < rooms.size(); ++i) copy_back(rooms[i], {outputs[i]});
    return -1;
  };
  return start({OpType::ALLTOALL, "mpi:all_to_all", options.timeout, inputs, {outputs}},
               {std::move(step)});
}

MpiBackend::Work MpiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits,
                                           const c10d::AllToAllOptions& options) {
  check_tensors({output, input});
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  const at::Tensor source = readable(input);
  const at::Tensor memory = overlap(source, output)
                                ? at::empty_like(output, at::MemoryFormat::Contiguous)
                                : writable(output);
  Step step;
  if (input_splits.empty() && output_splits.empty()) {
    TORCH_CHECK(input.numel() == output.numel(),
                "without split sizes input and output must have the same number of elements, got ",
                input.numel(), " and ", output.numel());
    step.post = [=, group = communicator_](Requests& mpi) {
      const ByteCount bytes(bytes_of(source) / group->size, group->largest_count);
      mpi("MPI_Ialltoall", MPI_Ialltoall, source.data_ptr(), bytes.count, bytes.type,
          memory.data_ptr(), bytes.count, bytes.type, group->handle);
    };
  } else {
    const Raw raw;
    const auto parts = [this](const at::Tensor& tensor, const std::vector<std::int64_t>& splits) {
      return splits.empty() ? tensor.split(tensor.size(0) / size_)
                            : tensor.split_with_sizes(splits);
    };
    step = pairs_step(parts(memory, output_splits), parts(source, input_splits));
  }
  const at::Tensor target = output;
  step.finish = [=](const auto&) {
    copy_back(memory, {target});
    return -1;
  };
  return start({OpType::ALLTOALL_BASE, "mpi:all_to_all", options.timeout, {input}, {{output}}},
               {std::move(step)});
}

MpiBackend::Work MpiBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor memory = readable(only(tensors));
  check_rank(to, "the receiver");
  check_tag(tag);
  return start({OpType::SEND, "mpi:send", options_->timeout, tensors, {}},
               {{[=, group = communicator_](Requests& mpi) {
                 const ByteCount bytes(bytes_of(memory), group->largest_count);
                 mpi("MPI_Isend", MPI_Isend, memory.data_ptr(), bytes.count, bytes.type, to, tag,
                     group->handle);
               }}});
}

MpiBackend::Work MpiBackend::receive(Tensors& tensors, int from, int tag, OpType type,
                                     const char* title) {
  const at::Tensor tensor = only(tensors);
  check_tag(tag);
  const at::Tensor memory = writable(tensor);
  return start(
      {type, title, options_->timeout, {}, {tensors}},
      {{[=, group = communicator_](Requests& mpi) {
          const ByteCount bytes(bytes_of(memory), group->largest_count);
          mpi("MPI_Irecv", MPI_Irecv, memory.data_ptr(), bytes.count, bytes.type, from, tag,
              group->handle);
        },
        [=](const std::vector<MPI_Status>& statuses) {
          MPI_Count received = 0;
          check("MPI_Get_elements_x", MPI_Get_elements_x(&statuses[0], MPI_BYTE, &received));
          const int sender = statuses[0].MPI_SOURCE;
          TORCH_CHECK_WITH(DistBackendError, received == bytes_of(memory), "rank ", sender,
                           " sent ", received, " bytes for a tensor of ", bytes_of(memory));
          copy_back(memory, {tensor});
          return sender;
        }}});
}

MpiBackend::Work MpiBackend::recv(Tensors& tensors, int from, int tag) {
  check_rank(from, "the sender");
  return receive(tensors, from, tag, OpType::RECV, "mpi:recv");
}

MpiBackend::Work MpiBackend::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, MPI_ANY_SOURCE, tag, OpType::RECVANYSOURCE, "mpi:recvAnySource");
}

MpiBackend::Work MpiBackend::barrier(const c10d::BarrierOptions& options) {
  return start({OpType::BARRIER, "mpi:barrier", options.timeout, {}, {}},
               {{[group = communicator_](Requests& mpi) {
                 mpi("MPI_Ibarrier", MPI_Ibarrier, group->handle);
               }}});
}

}  // namespace torchbridge::mpi
