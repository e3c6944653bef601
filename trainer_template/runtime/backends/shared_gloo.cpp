#include "trainer_template/runtime/backends/shared_gloo.h"

#include <algorithm>
#include <cstddef>

#include <ATen/ops/full.h>

#include "trainer_template/runtime/rendezvous/store_keys.h"

namespace torchbridge::train {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The order in which gloo's all-reduce adds up the values of the ranks. With three ranks or more
// the bits of the sums depend on it. gloo/allreduce.cc, `ring`: the tensor is divided into a chunk
// a rank, each of at least two segments of at most 1 MiB. Chunk j begins with the values of rank j
// - 1, to which ranks j - 2, j - 3, ..., j add theirs in turn, counted modulo the number of ranks.
// Returns the elements of a chunk; the last ranks' chunks may be shorter, or empty. REQUIRES:
// elements > 0, ranks > 1.
std::size_t elements_of_chunk(std::size_t elements, std::size_t element_size, std::size_t ranks) {
  constexpr std::size_t kMostBytes = 1 << 20;
  const auto divided = [](std::size_t number, std::size_t by) { return (number + by - 1) / by; };
  const std::size_t bytes = elements * element_size,
                    most = std::max<std::size_t>(1, kMostBytes / element_size) * element_size;
  const std::size_t segments = divided(std::max(divided(bytes, most), 2 * ranks), ranks) * ranks;
  const std::size_t segment_elements = divided(divided(bytes, segments), element_size);
  return segments / ranks * segment_elements;
}

// Calls add(first, begin, end) for the parts of [begin, end) that lie in one chunk; `first` is the
// rank whose values come first.
template <class Add>
void for_chunks(std::size_t begin, std::size_t end, std::size_t chunk, std::size_t ranks,
                Add&& add) {
  while (begin < end) {
    const std::size_t index = begin / chunk, stop = std::min(end, (index + 1) * chunk);
    add((index + ranks - 1) % ranks, begin, stop);
    begin = stop;
  }
}

// gloo moves larger tensors on its own threads while this thread computes.
constexpr std::size_t kLargest = 1 << 20;
// A tensor is reduced in pieces that stay in the caches.
constexpr std::size_t kSlotBytes = 256 << 10;
// Bytes of all ranks together up to which each rank adds up everything itself, which is faster than
// a second wait for the others.
constexpr std::size_t kAddedByAll = 64 << 10;
// Elements that are added up at a time: they stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

// Differs between operations that must not be in progress together.
std::uint64_t operation_id(c10d::OpType type, int detail, const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(type) << 56 |
         static_cast<std::uint64_t>(tensor.scalar_type()) << 48 |
         static_cast<std::uint64_t>(detail) << 32 | static_cast<std::uint64_t>(tensor.nbytes());
}

WorkPtr done(const std::vector<at::Tensor>& tensors) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(tensors));
  return c10d::Work::create_from_future(future);
}

bool is_reduced(c10d::ReduceOp::RedOpType op) {
  return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX;
}

// Calls use(Number()) with the type of the tensor's elements; false for types that gloo reduces
// itself.
template <class Use>
bool with_type_of(const at::Tensor& tensor, Use&& use) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return use(float()), true;
    case at::kDouble:
      return use(double()), true;
    case at::kHalf:
      return use(at::Half()), true;
    case at::kBFloat16:
      return use(at::BFloat16()), true;
    case at::kLong:
      return use(std::int64_t()), true;
    case at::kInt:
      return use(std::int32_t()), true;
    default:
      return false;
  }
}

template <class Number>
void combine(c10d::ReduceOp::RedOpType op, Number* sums, const Number* values, std::size_t count) {
  const auto each = [&](auto&& combined) {
    for (std::size_t i = 0; i < count; ++i) sums[i] = combined(values[i], sums[i]);
  };
  if (op == c10d::ReduceOp::SUM)
    return each([](Number a, Number b) { return static_cast<Number>(a + b); });
  if (op == c10d::ReduceOp::MIN) return each([](Number a, Number b) { return std::min(a, b); });
  each([](Number a, Number b) { return std::max(a, b); });
}

}  // namespace

void SharedGloo::share(const c10::intrusive_ptr<c10d::Store>& store, bool is_wanted) {
  constexpr const char* kTicket = "shared memory";
  const SharedRegion::Shape shape{.rank = getRank(), .size = getSize(), .slot_bytes = kSlotBytes};
  std::shared_ptr<SharedRegion> region;
  if (is_wanted) {
    const auto found = getRank() == 0 ? SharedRegion::create(shape)
                                      : SharedRegion::join(shape, get(*store, kTicket));
    if (found) region = *found;
  }
  if (getRank() == 0) put(*store, kTicket, region ? region->ticket() : "none");
  std::vector<at::Tensor> is_mapped_by_all = {at::full({1}, region ? 1 : 0, at::kInt)};
  ProcessGroupGloo::allreduce(is_mapped_by_all, {.reduceOp = c10d::ReduceOp::MIN})->wait();
  if (is_mapped_by_all[0].item<int>() == 1) region_ = std::move(region);
}

milliseconds SharedGloo::timeout(milliseconds given) {
  return given == c10d::kUnsetTimeout ? getOptions()->timeout : given;
}

bool SharedGloo::is_shared(const std::vector<at::Tensor>& tensors) const {
  if (!region_ || tensors.size() != 1) return false;
  const at::Tensor& tensor = tensors[0];
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg() && tensor.numel() > 0 && tensor.nbytes() <= kLargest;
}

WorkPtr SharedGloo::allreduce(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceOptions& options) {
  const auto op = options.reduceOp.op_;
  const bool is_done =
      is_shared(tensors) && is_reduced(op) && with_type_of(tensors[0], [&](auto number) {
        reduce<decltype(number)>(tensors[0], op, timeout(options.timeout));
      });
  return is_done ? done(tensors) : ProcessGroupGloo::allreduce(tensors, options);
}

// One piece after the other. Of a large piece each rank adds up one part, and copies the other
// parts from their ranks.
template <class Number>
void SharedGloo::reduce(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op,
                        milliseconds timeout) {
  constexpr std::size_t kPiece = kSlotBytes / sizeof(Number);
  const auto ranks = static_cast<std::size_t>(getSize()),
             rank = static_cast<std::size_t>(getRank());
  const auto elements = static_cast<std::size_t>(tensor.numel());
  const std::size_t chunk = elements_of_chunk(elements, sizeof(Number), ranks);
  Number* const data = static_cast<Number*>(tensor.data_ptr());
  const auto slot = [&](std::size_t index) {
    return reinterpret_cast<Number*>(region_->slot(static_cast<int>(index)));
  };
  for (std::size_t piece = 0; piece < elements; piece += kPiece) {
    const std::size_t end = std::min(elements, piece + kPiece);
    const auto add_up = [&](std::size_t from, std::size_t to) {
      for_chunks(from, to, chunk, ranks,
                 [&](std::size_t first, std::size_t begin, std::size_t stop) {
                   for (; begin < stop; begin += kBlock) {
                     const std::size_t count = std::min(kBlock, stop - begin);
                     std::copy_n(slot(first) + (begin - piece), count, data + begin);
                     for (std::size_t i = 1; i < ranks; ++i)
                       combine(op, data + begin,
                               slot((first + ranks - i) % ranks) + (begin - piece), count);
                   }
                 });
    };
    region_->begin(operation_id(c10d::OpType::ALLREDUCE, static_cast<int>(op), tensor));
    std::copy_n(data + piece, end - piece, slot(rank));
    region_->wait_for_all(timeout);
    if ((end - piece) * sizeof(Number) * ranks <= kAddedByAll) {
      add_up(piece, end);
      continue;
    }
    const auto part = [&](std::size_t index) { return piece + (end - piece) * index / ranks; };
    add_up(part(rank), part(rank + 1));
    std::copy(data + part(rank), data + part(rank + 1), slot(rank) + (part(rank) - piece));
    region_->wait_for_all(timeout);
    for (std::size_t i = 0; i < ranks; ++i) {
      if (i != rank)
        std::copy_n(slot(i) + (part(i) - piece), part(i + 1) - part(i), data + part(i));
    }
  }
}

WorkPtr SharedGloo::broadcast(std::vector<at::Tensor>& tensors,
                              const c10d::BroadcastOptions& options) {
  if (!is_shared(tensors) || options.rootRank < 0 || options.rootRank >= getSize() ||
      options.rootTensor != 0) {
    return ProcessGroupGloo::broadcast(tensors, options);
  }
  const int root = static_cast<int>(options.rootRank);
  char* const data = static_cast<char*>(tensors[0].data_ptr());
  const std::size_t bytes = tensors[0].nbytes();
  for (std::size_t piece = 0; piece < bytes; piece += kSlotBytes) {
    const std::size_t count = std::min(kSlotBytes, bytes - piece);
    region_->begin(operation_id(c10d::OpType::BROADCAST, root, tensors[0]));
    if (root == getRank()) std::copy_n(data + piece, count, region_->slot(root));
    region_->wait_for_all(timeout(options.timeout));
    if (root != getRank()) std::copy_n(region_->slot(root), count, data + piece);
  }
  return done(tensors);
}

}  // namespace torchbridge::train
