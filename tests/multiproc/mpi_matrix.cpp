// Each collective of the MPI backend against gloo's, over operators, types, shapes and memory layouts, on as many ranks as mpirun
// starts; then what gloo has no answer to: groups, messages, errors, timeouts. One line a failure; the exit code is their number.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torchbridge/mpi_backend/backend.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>

namespace {

using torchbridge::mpi::MpiBackend;
using torchbridge::mpi::MpiOptions;
using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

int failures = 0, compared = 0, by_formula = 0;
int rank = 0, size = 1;

void fail(const std::string& what) {
  ++failures;
  std::fprintf(stderr, "rank %d of %d: FAILED: %s\n", rank, size, what.c_str());
}
void expect(bool fact, const std::string& what) {
  if (!fact) fail(what);
}

// The text of what `call` throws; empty where it does not.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Setting {
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape = {7};
  bool strided = false;  // transposed, or every second element
  ReduceOp::RedOpType op = ReduceOp::SUM;
  int root = 0;

  std::string name() const {
    return std::string(c10::toString(type)) + " " + c10::str(at::IntArrayRef(shape)) + (strided ? " strided" : "") + " op " +
           std::to_string(op) + " root " + std::to_string(root);
  }

  // The memory of this layout; `values` may be anything that copies into it.
  at::Tensor laid_out(const at::Tensor& values) const {
    if (!strided || shape.empty()) return values.clone(at::MemoryFormat::Contiguous);
    auto larger = shape;
    larger.back() *= 2;
    return at::zeros(larger, values.options()).slice(-1, 0, larger.back(), 2).copy_(values);
  }

  // Small whole numbers that every type holds, so that sums are exact in any order; another tensor for each `number`.
  at::Tensor values(int of_rank, int number = 0) const {
    std::int64_t count = 1;
    for (const auto n : shape) count *= n;
    const int kinds = type == at::kBool || op == ReduceOp::PRODUCT ? 2 : 3;
    const auto whole = (at::arange(count) * 7 + of_rank * 3 + number * 11) % kinds + (type == at::kBool ? 0 : 1);
    return whole.reshape(shape).to(type);
  }
  at::Tensor input(int number = 0) const { return laid_out(values(rank, number)); }
  at::Tensor output() const { return laid_out(at::zeros(shape, type)); }
  Tensors outputs() const {
    Tensors list;
    for (int i = 0; i < size; ++i) list.push_back(output());
    return list;
  }
  Tensors inputs() const {
    Tensors list;
    for (int i = 0; i < size; ++i) list.push_back(input(i + 1));
    return list;
  }
  std::vector<std::int64_t> flat(int times) const { return {times * values(0).numel()}; }
};

template <class Options>
Options reducing(const Setting& setting) {
  Options options;
  options.reduceOp = setting.op;
  return options;
}

using Run = Tensors (*)(c10d::Backend&, const Setting&);

struct Collective {
  const char* name;
  bool reduces;
  Run run;
};

const Collective kCollectives[] = {
    {"allreduce", true, [](c10d::Backend& backend, const Setting& s) {
       Tensors tensors = {s.input()};
       backend.allreduce(tensors, reducing<c10d::AllreduceOptions>(s))->wait();
       return tensors;
     }},
    {"allreduce_coalesced", true, [](c10d::Backend& backend, const Setting& s) {
       Tensors tensors = s.inputs();
       backend.allreduce_coalesced(tensors, reducing<c10d::AllreduceCoalescedOptions>(s))->wait();
       return tensors;
     }},
    {"reduce", true, [](c10d::Backend& backend, const Setting& s) {
       Tensors tensors = {s.input()};
       auto options = reducing<c10d::ReduceOptions>(s);
       options.rootRank = s.root;
       backend.reduce(tensors, options)->wait();
       return rank == s.root ? tensors : Tensors();
     }},
    {"reduce_scatter", true, [](c10d::Backend& backend, const Setting& s) {
       Tensors outputs = {s.output()};
       Lists inputs = {s.inputs()};
       backend.reduce_scatter(outputs, inputs, reducing<c10d::ReduceScatterOptions>(s))->wait();
       return outputs;
     }},
    {"reduce_scatter_base", true, [](c10d::Backend& backend, const Setting& s) {
       Tensors flat;
       for (const auto& tensor : s.inputs()) flat.push_back(tensor.reshape({-1}));
       at::Tensor output = s.output(), input = at::cat(flat);
       output = output.reshape({-1});
       backend._reduce_scatter_base(output, input, reducing<c10d::ReduceScatterOptions>(s))->wait();
       return Tensors{output};
     }},
    {"broadcast", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors tensors = {s.input()};
       c10d::BroadcastOptions options;
       options.rootRank = s.root;
       backend.broadcast(tensors, options)->wait();
       return tensors;
     }},
    {"allgather", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors inputs = {s.input()};
       Lists outputs = {s.outputs()};
       backend.allgather(outputs, inputs, {})->wait();
       return outputs[0];
     }},
    {"allgather_base", false, [](c10d::Backend& backend, const Setting& s) {
       at::Tensor input = s.input().reshape({-1}), output = at::zeros(s.flat(size), s.type);
       backend._allgather_base(output, input, {})->wait();
       return Tensors{output};
     }},
    {"allgather_coalesced", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors inputs = {s.input(1), s.input(2)};
       Lists outputs;
       for (int i = 0; i < size; ++i) outputs.push_back({s.output(), s.output()});
       backend.allgather_coalesced(outputs, inputs, {})->wait();
       Tensors all;
       for (const auto& list : outputs) all.insert(all.end(), list.begin(), list.end());
       return all;
     }},
    {"allgather_into_tensor_coalesced", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors inputs = {s.input(1).reshape({-1}), s.input(2).reshape({-1})};
       Tensors outputs = {at::zeros(s.flat(size), s.type), at::zeros(s.flat(size), s.type)};
       backend.allgather_into_tensor_coalesced(outputs, inputs, {})->wait();
       return outputs;
     }},
    {"gather", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors inputs = {s.input()};
       Lists outputs;
       if (rank == s.root) outputs.push_back(s.outputs());
       c10d::GatherOptions options;
       options.rootRank = s.root;
       backend.gather(outputs, inputs, options)->wait();
       return outputs.empty() ? Tensors() : outputs[0];
     }},
    {"scatter", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors outputs = {s.output()};
       Lists inputs;
       if (rank == s.root) inputs.push_back(s.inputs());
       c10d::ScatterOptions options;
       options.rootRank = s.root;
       backend.scatter(outputs, inputs, options)->wait();
       return outputs;
     }},
    {"alltoall", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors outputs = s.outputs(), inputs = s.inputs();
       backend.alltoall(outputs, inputs, {})->wait();
       return outputs;
     }},
    {"alltoall_base", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors flat;
       for (const auto& tensor : s.inputs()) flat.push_back(tensor.reshape({-1}));
       at::Tensor input = at::cat(flat), output = at::zeros_like(input);
       std::vector<std::int64_t> none, same;
       backend.alltoall_base(output, input, none, same, {})->wait();
       return Tensors{output};
     }},
    {"alltoall_base, uneven", false, [](c10d::Backend& backend, const Setting& s) {
       // Rank r gives r + d + 1 rows to rank d.
       std::vector<std::int64_t> gives, takes;
       std::int64_t given = 0, taken = 0;
       for (int i = 0; i < size; ++i) {
         gives.push_back(rank + i + 1);
         takes.push_back(rank + i + 1);
         given += gives.back();
         taken += takes.back();
       }
       at::Tensor input = ((at::arange(given * 3) + rank) % 2).reshape({given, 3}).to(s.type);
       at::Tensor output = at::zeros({taken, 3}, s.type);
       backend.alltoall_base(output, input, takes, gives, {})->wait();
       return Tensors{output};
     }},
    {"send, recv", false, [](c10d::Backend& backend, const Setting& s) {
       Tensors outgoing = {s.input()}, incoming = {s.output()};
       const auto sent = backend.send(outgoing, (rank + 1) % size, 3);
       backend.recv(incoming, (rank + size - 1) % size, 3)->wait();
       sent->wait();
       return incoming;
     }},
};

at::Tensor comparable(const at::Tensor& tensor) {
  // gloo adds bools as bytes: 2 is true as well.
  const at::Tensor plain = tensor.contiguous();
  return tensor.scalar_type() == at::kBool ? plain.view(at::kByte).ne(0) : plain;
}

bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || !at::equal(comparable(a[i]), comparable(b[i]))) return false;
  }
  return true;
}

// For what gloo does not reduce: all ranks' values are known to each.
at::Tensor reduced(const Setting& s) {
  at::Tensor all = s.values(0);
  for (int other = 1; other < size; ++other) {
    const at::Tensor next = s.values(other);
    switch (s.op) {
      case ReduceOp::SUM:
      case ReduceOp::AVG: all = s.type == at::kBool ? all.logical_or(next) : (all + next).to(s.type); break;
      case ReduceOp::PRODUCT: all = (all * next).to(s.type); break;
      case ReduceOp::MIN: all = at::minimum(all, next); break;
      case ReduceOp::MAX: all = at::maximum(all, next); break;
      case ReduceOp::BAND: all = at::bitwise_and(all, next); break;
      case ReduceOp::BOR: all = at::bitwise_or(all, next); break;
      default: all = at::bitwise_xor(all, next);
    }
  }
  if (s.op != ReduceOp::AVG) return all;
  return c10::isIntegralType(s.type, false) ? all.div(size, "trunc") : all.div(size);
}

void compare(const Collective& collective, c10d::Backend& mpi, c10d::Backend& gloo, const Setting& setting) {
  const std::string name = std::string(collective.name) + " of " + setting.name();
  Setting plain = setting;
  plain.strided = false;
  // gloo is asked once; the memory layout makes no difference to what it would say.
  static std::map<std::string, std::pair<std::string, Tensors>> answers;
  const auto [answer, is_new] = answers.try_emplace(collective.name + plain.name());
  auto& [no_gloo, expected] = answer->second;
  if (is_new) no_gloo = error_of([&] { expected = collective.run(gloo, plain); });
  Tensors found;
  const std::string error = error_of([&] { found = collective.run(mpi, setting); });
  if (!error.empty()) return fail(name + ": " + error);
  if (no_gloo.empty()) {
    ++compared;
    expect(same(found, expected), name + ": other values than gloo's");
  } else if (std::string(collective.name) == "allreduce") {
    ++by_formula;
    expect(same(found, {reduced(setting)}), name + ": other values than expected");
  }
}

void matrix(c10d::Backend& mpi, c10d::Backend& gloo, std::int64_t longest) {
  const at::ScalarType kReducible[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kShort, at::kInt,
                                       at::kLong, at::kBool, at::kComplexFloat, at::kComplexDouble};
  const ReduceOp::RedOpType kOps[] = {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX,
                                      ReduceOp::BAND, ReduceOp::BOR, ReduceOp::BXOR};
  const std::vector<std::int64_t> kShapes[] = {{}, {1}, {7}, {3, 5}, {2, 3, 4}, {300}};
  for (const Collective& collective : kCollectives) {
    for (const at::ScalarType type : kReducible) {
      // gloo on many ranks and few cores is slow; the types are not what many ranks change.
      if (size > 4 && type != at::kHalf && type != at::kLong) continue;
      const bool is_complex = c10::isComplexType(type), is_bits = c10::isIntegralType(type, true);
      if (collective.reduces) {
        for (const auto op : kOps) {
          if (size > 4 && op != ReduceOp::SUM && op != ReduceOp::MAX) continue;
          if (is_complex && (op == ReduceOp::MIN || op == ReduceOp::MAX)) continue;
          if (!is_bits && op >= ReduceOp::BAND) continue;
          if (type == at::kBool && op == ReduceOp::AVG) continue;
          compare(collective, mpi, gloo, {type, {7}, false, op, size - 1});
        }
      }
      compare(collective, mpi, gloo, {type, {3, 4}, true, ReduceOp::SUM, 0});
    }
    for (const auto& shape : kShapes) {
      if (size > 4 && shape.size() != 3) continue;
      for (const bool strided : {false, true}) compare(collective, mpi, gloo, {at::kFloat, shape, strided, ReduceOp::SUM, size / 2});
    }
    compare(collective, mpi, gloo, {at::kFloat, {longest}, false, ReduceOp::SUM, 0});
    compare(collective, mpi, gloo, {at::kHalf, {longest}, false, ReduceOp::MAX, 0});
  }
}

void premultiplied(c10d::Backend& mpi) {
  Tensors tensors = {at::full({5}, 2.0F)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::makeNCCLPreMulSum(0.5);
  mpi.allreduce(tensors, options)->wait();
  expect(at::equal(tensors[0], at::full({5}, static_cast<float>(size))), "PREMUL_SUM by 0.5 of twos");
}

// FSDP gathers in place, and scatters into a part of what it reduces.
void in_place(c10d::Backend& mpi) {
  at::Tensor all = at::zeros({size * 4}), own = all.narrow(0, rank * 4, 4).fill_(rank + 1);
  mpi._allgather_base(all, own, {})->wait();
  expect(at::equal(all, at::arange(1, size + 1).repeat_interleave(4).to(at::kFloat)), "_allgather_base in place");
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
  // Both send first, and more than MPI buffers: nothing waits in turn.
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
      expect(incoming[0][0].item<std::int64_t>() == work->sourceRank(), "a message is from whom it says");
    }
    expect(static_cast<int>(senders.size()) == size - 1, "messages of all ranks from any source");
  } else {
    Tensors outgoing = {at::full({3}, rank, at::kLong)};
    mpi.send(outgoing, 0, 9)->wait();
  }
  // Two sizes that do not fit end in the Work, and harm nothing else.
  if (rank < 2) {
    Tensors four = {at::zeros({4})}, eight = {at::zeros({8})}, two = {at::zeros({2})};
    if (rank == 0) {
      mpi.send(four, 1, 1)->wait();
      mpi.send(four, 1, 2)->wait();
    } else {
      const auto too_large = mpi.recv(eight, 0, 1), too_small = mpi.recv(two, 0, 2);
      expect(contains(error_of([&] { too_large->wait(); }), "rank 0 sent 16 bytes for a tensor of 32"), "a shorter message");
      const std::string error = error_of([&] { too_small->wait(); });
      expect(contains(error, "mpi:recv") && contains(error, "trunc"), "a longer message: " + error);
      expect(!too_small->isSuccess() && too_small->exception() != nullptr && too_small->getFuture()->hasError(), "the error in Work and future");
    }
  }
  mpi.barrier({})->wait();
}

void bad_input(c10d::Backend& mpi) {
  Tensors ones = {at::ones({2})};
  c10d::AllreduceOptions bits;
  bits.reduceOp = ReduceOp::BAND;
  expect(contains(error_of([&] { mpi.allreduce(ones, bits); }), "no BAND of Float tensors"), "BAND of floats");
  c10d::BroadcastOptions far;
  far.rootRank = size;
  expect(contains(error_of([&] { mpi.broadcast(ones, far); }), "the root of broadcast is rank"), "a root outside");
  expect(contains(error_of([&] { mpi.send(ones, 0, -1); }), "the tag is -1"), "a negative tag");
  Tensors sparse = {at::ones({2}).to_sparse()};
  expect(contains(error_of([&] { mpi.allreduce(sparse, {}); }), "dense tensors only"), "a sparse tensor");
  Tensors elsewhere = {at::ones({2}, at::kMeta)};
  expect(contains(error_of([&] { mpi.allreduce(elsewhere, {}); }), "on meta"), "a tensor on another device");
  Tensors eighths = {at::ones({2}).to(at::kFloat8_e5m2)};
  expect(contains(error_of([&] { mpi.allreduce(eighths, {}); }), "cannot reduce Float8"), "a sum of float8");
  expect(error_of([&] { mpi.broadcast(eighths, {})->wait(); }).empty(), "float8 can be sent");
  Tensors two = {at::ones({2}), at::ones({2})};
  expect(contains(error_of([&] { mpi.allreduce(two, {}); }), "expected one tensor, got 2"), "two tensors");
}

void futures_and_titles(c10d::Backend& mpi) {
  static std::set<std::string> titles;
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                              titles.insert(function.name());
                                              return std::unique_ptr<at::ObserverContext>();
                                            }).scopes({at::RecordScope::USER_SCOPE}));
  Tensors tensors = {at::ones({3})};
  const auto work = mpi.allreduce(tensors, {});
  const auto doubled = work->getFuture()->then(
      [](c10::ivalue::Future& future) { return c10::IValue(future.value().toTensorVector()[0] * 2); }, c10::TensorType::get());
  doubled->wait();
  work->wait();
  at::removeCallback(handle);
  expect(at::equal(doubled->value().toTensor(), at::full({3}, 2.0F * static_cast<float>(size))), "the value of a future");
  expect(work->isCompleted() && work->isSuccess() && work->retrieveOpType() == c10d::OpType::ALLREDUCE, "a work that has ended");
  expect(titles.contains("mpi:all_reduce"), "the profiling title mpi:all_reduce");
}

// A group forgotten before its work is done, and many at once.
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
  expect(tensors[0][999].item<float>() == static_cast<float>(size), "a group that is gone before its work is done");
  for (int i = 0; i < 100; ++i) world.allreduce(tensors, {});  // nobody waits for these
}

void groups(MpiBackend& world) {
  // Halves, of which each rank knows only its own.
  auto options = c10::make_intrusive<MpiOptions>();
  for (int i = rank % 2; i < size; i += 2) options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(i));
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
    expect(contains(error, "mpi:all_reduce number 1 of rank 0 timed out after 0.1 s"), "a rank that does not come: " + error);
    expect(contains(error_of([&] { group->allreduce(more, {})->wait(); }), "the group has failed before"), "a group after a timeout");
  }
  world.barrier({})->wait();
  // The others come after all, so that the program can end well.
  if (rank != 0) group->allreduce(tensors, {})->wait();
  world.barrier({})->wait();
}

void ask_for_cuda(c10d::Backend& mpi) {
  if (!at::hasCUDA()) return;
  Tensors tensors = {at::ones({2}, at::kCUDA)};
  const std::string error = error_of([&] { mpi.allreduce(tensors, {})->wait(); });
  expect(error.empty() || contains(error, "does not take CUDA memory"), "a CUDA tensor: " + error);
}

}  // namespace

int main(int, char** arguments) {
  at::set_num_threads(1);
  const auto world = MpiBackend::create();
  rank = world->getRank();
  size = world->getSize();
  {
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    options->threads = 1;
    c10d::ProcessGroupGloo gloo(c10::make_intrusive<c10d::FileStore>(arguments[1], size), rank, size, options);
    matrix(*world, gloo, 70001);
    // The same in parts and blocks, as what is too large for MPI's ints.
    auto in_parts = c10::make_intrusive<MpiOptions>();
    in_parts->largest_count = 24;
    matrix(*MpiBackend::create(in_parts), gloo, 301);
    world->barrier({})->wait();
  }
  premultiplied(*world);
  in_place(*world);
  empty_tensors(*world);
  messages(*world);
  bad_input(*world);
  futures_and_titles(*world);
  lifetimes(*world);
  groups(*world);
  timeouts(*world);
  ask_for_cuda(*world);
  world->barrier({})->wait();
  if (rank == 0) std::printf("%d ranks: %d comparisons with gloo, %d by formula, %d failures\n", size, compared, by_formula, failures);
  return failures > 0 ? 1 : 0;
}
