// Tests that need no comparison with gloo: messages, groups, futures, titles, errors and timeouts
// of the MPI backend, on the ranks that mpirun starts. Prints one line for each failure; exit code
// 1 after any.
#include <set>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backends/mpi/mpi_backend.h"
#include "tests/programs/mpi/expectations.h"
#include "trainer_template/runtime/backends/c10d_versions.h"

namespace {

using c10d::ReduceOp;
using torchbridge::mpi::MpiBackend;
using torchbridge::mpi::MpiOptions;
using Tensors = std::vector<at::Tensor>;

void premultiplied(c10d::Backend& mpi) {
  Tensors tensors = {at::full({5}, 2.0F)};
  c10d::AllreduceOptions options;
#if TORCHBRIDGE_LIBTORCH_SINCE(13)
  options.reduceOp = c10d::makePreMulSum(0.5);
#else
  options.reduceOp = c10d::makeNCCLPreMulSum(0.5);
#endif
  mpi.allreduce(tensors, options)->wait();
  expect(at::equal(tensors[0], at::full({5}, static_cast<float>(size))),
         "PREMUL_SUM by 0.5 of twos");
}

// As FSDP: gathers in place, and scatters into a part of its input.
void in_place(c10d::Backend& mpi) {
  at::Tensor all = at::zeros({size * 4}), own = all.narrow(0, rank * 4, 4).fill_(rank + 1);
  mpi._allgather_base(all, own, {})->wait();
  expect(at::equal(all, at::arange(1, size + 1).repeat_interleave(4).to(at::kFloat)),
         "_allgather_base in place");
  all.fill_(1);
  mpi._reduce_scatter_base(own, all, {})->wait();
  expect(at::equal(own, at::full({4}, static_cast<float>(size))), "_reduce_scatter_base in place");
}

void empty_tensors(c10d::Backend& mpi) {
  Tensors nothing = {at::zeros({0})};
  mpi.allreduce(nothing, {})->wait();
  mpi.broadcast(nothing, {})->wait();
  at::Tensor none = at::zeros({0});
  mpi._allgather_base(none, nothing[0], {})->wait();
}

void messages(c10d::Backend& mpi) {
  if (size < 2) return;
  // Both send first, and more than MPI buffers: no deadlock.
  Tensors large = {at::full({1 << 20}, rank)}, other = {at::zeros({1 << 20}, at::kLong)};
  large[0] = large[0].to(at::kLong);
  const int partner = rank ^ 1;
  if (partner < size) {
    const auto sent = mpi.send(large, partner, 0);
    mpi.recv(other, partner, 0)->wait();
    sent->wait();
    expect(other[0][0].item<std::int64_t>() == partner, "large messages in both directions");
  }
  // From any source: each rank once.
  if (rank == 0) {
    std::set<int> senders;
    for (int i = 1; i < size; ++i) {
      Tensors incoming = {at::zeros({3}, at::kLong)};
      const auto work = mpi.recvAnysource(incoming, 9);
      work->wait();
      senders.insert(work->sourceRank());
      expect(incoming[0][0].item<std::int64_t>() == work->sourceRank(),
             "sourceRank() is the sender");
    }
    expect(static_cast<int>(senders.size()) == size - 1, "messages of all ranks from any source");
  } else {
    Tensors outgoing = {at::full({3}, rank, at::kLong)};
    mpi.send(outgoing, 0, 9)->wait();
  }
  // Sizes that do not match are an error of the Work, and affect nothing else.
  if (rank < 2) {
    Tensors four = {at::zeros({4})}, eight = {at::zeros({8})}, two = {at::zeros({2})};
    if (rank == 0) {
      mpi.send(four, 1, 1)->wait();
      mpi.send(four, 1, 2)->wait();
    } else {
      const auto too_large = mpi.recv(eight, 0, 1), too_small = mpi.recv(two, 0, 2);
      expect(
          contains(error_of([&] { too_large->wait(); }), "rank 0 sent 16 bytes for a tensor of 32"),
          "a shorter message");
      const std::string error = error_of([&] { too_small->wait(); });
      expect(contains(error, "mpi:recv") && contains(error, "trunc"), "a longer message: " + error);
      expect(!too_small->isSuccess() && too_small->exception() != nullptr &&
                 too_small->getFuture()->hasError(),
             "the error in Work and future");
    }
  }
  mpi.barrier({})->wait();
}

void bad_input(c10d::Backend& mpi) {
  Tensors ones = {at::ones({2})};
  c10d::AllreduceOptions bits;
  bits.reduceOp = ReduceOp::BAND;
  expect(contains(error_of([&] { mpi.allreduce(ones, bits); }), "no BAND of Float tensors"),
         "BAND of floats");
  c10d::BroadcastOptions far;
  far.rootRank = size;
  expect(contains(error_of([&] { mpi.broadcast(ones, far); }), "the root of broadcast is rank"),
         "a root outside");
  expect(contains(error_of([&] { mpi.send(ones, 0, -1); }), "the tag is -1"), "a negative tag");
  Tensors sparse = {at::ones({2}).to_sparse()};
  expect(contains(error_of([&] { mpi.allreduce(sparse, {}); }), "dense tensors only"),
         "a sparse tensor");
  Tensors elsewhere = {at::ones({2}, at::kMeta)};
  expect(contains(error_of([&] { mpi.allreduce(elsewhere, {}); }), "on meta"),
         "a tensor on another device");
  Tensors eighths = {at::ones({2}).to(at::kFloat8_e5m2)};
  expect(contains(error_of([&] { mpi.allreduce(eighths, {}); }), "cannot reduce Float8"),
         "a sum of float8");
  expect(error_of([&] { mpi.broadcast(eighths, {})->wait(); }).empty(), "float8 can be sent");
  Tensors two = {at::ones({2}), at::ones({2})};
  expect(contains(error_of([&] { mpi.allreduce(two, {}); }), "expected one tensor, got 2"),
         "two tensors");
}

void futures_and_titles(c10d::Backend& mpi) {
  static std::set<std::string> titles;
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                              titles.insert(function.name());
                              return std::unique_ptr<at::ObserverContext>();
                            }).scopes({at::RecordScope::USER_SCOPE}));
  Tensors tensors = {at::ones({3})};
  const auto work = mpi.allreduce(tensors, {});
  const auto doubled = work->getFuture()->then(
      [](c10::ivalue::Future& future) {
        return c10::IValue(future.value().toTensorVector()[0] * 2);
      },
      c10::TensorType::get());
  doubled->wait();
  work->wait();
  at::removeCallback(handle);
  expect(at::equal(doubled->value().toTensor(), at::full({3}, 2.0F * static_cast<float>(size))),
         "the value of a future");
  expect(
      work->isCompleted() && work->isSuccess() && work->retrieveOpType() == c10d::OpType::ALLREDUCE,
      "a work that has ended");
  expect(titles.contains("mpi:all_reduce"), "the profiling title mpi:all_reduce");
}

// A group that is released before its work is done, and many operations at once.
void lifetimes(MpiBackend& world) {
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(size - 1 - i);
  Tensors tensors = {at::ones({1000})};
  c10::intrusive_ptr<c10d::Work> work;
  {
    const auto reversed = world.split({}, all, {});
    expect(reversed->getRank() == size - 1 - rank, "ranks in the order that was given");
    work = reversed->allreduce(tensors, {});
  }
  work->wait();
  expect(tensors[0][999].item<float>() == static_cast<float>(size),
         "a group that is released before its work is done");
  for (int i = 0; i < 100; ++i) world.allreduce(tensors, {});  // no wait() for these
}

void groups(MpiBackend& world) {
  // Halves, of which each rank knows only its own.
  auto options = c10::make_intrusive<MpiOptions>();
  for (int i = rank % 2; i < size; i += 2)
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(i));
  const auto half = MpiBackend::create(options);
  Tensors tensors = {at::full({1}, rank, at::kLong)};
  half->allreduce(tensors, {})->wait();
  std::int64_t expected = 0;
  for (int i = rank % 2; i < size; i += 2) expected += i;
  expect(tensors[0].item<std::int64_t>() == expected, "a sum over half of the ranks");
  if (rank != 0 || size == 1) return;
  expect(!world.split({}, {1}, {}), "no group for a rank that is not in it");
}

void timeouts(MpiBackend& world) {
  if (size < 2) return;
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(i);
  const auto group = world.split({}, all, {});
  Tensors tensors = {at::ones({2})}, more = {at::ones({2})};
  if (rank == 0) {
    c10d::AllreduceOptions options;
    options.timeout = std::chrono::milliseconds(100);
    const auto work = group->allreduce(tensors, options);
    const std::string error = error_of([&] { work->wait(); });
    expect(contains(error, "mpi:all_reduce number 1 of rank 0 timed out after 0.1 s"),
           "a rank that does not take part: " + error);
    expect(
        contains(error_of([&] { group->allreduce(more, {})->wait(); }), "the group failed before"),
        "a group after a timeout");
  }
  world.barrier({})->wait();
  // The others take part in the end, so that the program can end with exit code 0.
  if (rank != 0) group->allreduce(tensors, {})->wait();
  world.barrier({})->wait();
}

void aborted(MpiBackend& world) {
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(i);
  const auto group = world.split({}, all, {});
  Tensors tensors = {at::ones({2})};
  if (size > 1 && rank == 0) {
    const auto waiting = group->recv(tensors, 1, 5);
    group->abort();
    const std::string error = error_of([&] { waiting->wait(); });
    expect(contains(error, "mpi:recv of rank 0: the group was aborted"),
           "an operation under way: " + error);
    expect(!waiting->isSuccess() && waiting->getFuture()->hasError(),
           "the error in Work and future");
  }
  world.barrier({})->wait();
  // Sent in the end, so that the program can end with exit code 0.
  if (rank == 1) group->send(tensors, 0, 5)->wait();
  group->abort();
  const std::string error = error_of([&] { group->allreduce(tensors, {})->wait(); });
  expect(contains(error, "the group failed before: the group was aborted"),
         "an operation afterwards: " + error);
}

// After a failed collective the state of the communicator is unknown.
void sizes_that_differ(MpiBackend& world) {
  if (size < 2) return;
  const auto group = world.split({}, {0, 1}, {});
  if (rank < 2) {
    Tensors tensors = {at::ones({rank == 0 ? 8 : 4})};
    const auto work = group->broadcast(tensors, {});
    const std::string error = error_of([&] { work->wait(); });
    if (rank == 1) {
      expect(contains(error, "mpi:broadcast number 1 of rank 1"),
             "more than the tensor holds: " + error);
      const std::string after = error_of([&] { group->allreduce(tensors, {})->wait(); });
      expect(contains(after, "the group failed before: mpi:broadcast number 1"),
             "a group after a collective that failed: " + after);
    }
  }
  world.barrier({})->wait();
}

void ask_for_cuda(c10d::Backend& mpi) {
  if (!at::hasCUDA()) return;
  Tensors tensors = {at::ones({2}, at::kCUDA)};
  const std::string error = error_of([&] { mpi.allreduce(tensors, {})->wait(); });
  expect(error.empty() || contains(error, "does not support CUDA memory"),
         "a CUDA tensor: " + error);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const auto world = MpiBackend::create();
  rank = world->getRank();
  size = world->getSize();
  premultiplied(*world);
  in_place(*world);
  empty_tensors(*world);
  messages(*world);
  bad_input(*world);
  futures_and_titles(*world);
  lifetimes(*world);
  groups(*world);
  timeouts(*world);
  aborted(*world);
  sizes_that_differ(*world);
  ask_for_cuda(*world);
  world->barrier({})->wait();
  return failures > 0 ? 1 : 0;
}
