#include "tests/programs/mpi/collectives.h"

#include <ATen/ATen.h>

#include "tests/programs/mpi/expectations.h"

namespace {

using c10d::Backend;
using c10d::ReduceOp;
using Lists = std::vector<Tensors>;
using S = const Setting&;

template <class Options>
Options reducing(S s) {
  Options options;
  options.reduceOp = s.op;
  return options;
}

template <class Options>
Options rooted(S s) {
  Options options;
  options.rootRank = s.root;
  return options;
}

at::Tensor joined(const Tensors& list) {
  Tensors flat;
  for (const at::Tensor& tensor : list) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

at::Tensor joined_output(S s) { return joined(s.outputs()); }

// One tensor for each rank.
template <class Make>
Tensors for_all(Make&& make) {
  Tensors list;
  for (int other = 0; other < size; ++other) list.push_back(make(other));
  return list;
}

Tensors from_all(S s, int number) {
  return for_all([&](int other) { return s.values(other, number); });
}

at::Tensor laid_out(S s, const at::Tensor& values) {
  if (!s.strided || s.shape.empty()) return values.clone(at::MemoryFormat::Contiguous);
  auto larger = s.shape;
  larger.back() *= 2;
  return at::zeros(larger, values.options()).slice(-1, 0, larger.back(), 2).copy_(values);
}

// Of alltoall_base with splits: rank r gives r + d + 1 rows of three to rank d.
int rows_between(int from, int to) { return from + to + 1; }
at::Tensor uneven_input(S s, int of_rank) {
  int rows = 0;
  for (int to = 0; to < size; ++to) rows += rows_between(of_rank, to);
  return ((at::arange(rows * 3) + of_rank) % 2).reshape({rows, 3}).to(s.type);
}

}  // namespace

std::string Setting::name() const {
  return std::string(c10::toString(type)) + " " + c10::str(at::IntArrayRef(shape)) +
         (strided ? " strided" : "") + " op " + std::to_string(op) + " root " +
         std::to_string(root);
}

at::Tensor Setting::values(int of_rank, int number) const {
  std::int64_t count = 1;
  for (const auto n : shape) count *= n;
  const int kinds = type == at::kBool || op == ReduceOp::PRODUCT ? 2 : 3;
  const auto whole =
      ((at::arange(count) * 7 + of_rank * 3 + number * 11) % kinds + (type == at::kBool ? 0 : 1))
          .reshape(shape);
  if (!c10::isComplexType(type)) return whole.to(type);
  return at::complex(whole.to(at::kDouble), ((whole + of_rank) % 2).to(at::kDouble)).to(type);
}

at::Tensor Setting::reduced(int number) const {
  at::Tensor all = values(0, number);
  for (int other = 1; other < size; ++other) {
    const at::Tensor next = values(other, number);
    switch (op) {
      case ReduceOp::SUM:
      case ReduceOp::AVG:
        all = type == at::kBool ? all.logical_or(next) : (all + next).to(type);
        break;
      case ReduceOp::PRODUCT:
        all = (all * next).to(type);
        break;
      case ReduceOp::MIN:
        all = at::minimum(all, next);
        break;
      case ReduceOp::MAX:
        all = at::maximum(all, next);
        break;
      case ReduceOp::BAND:
        all = at::bitwise_and(all, next);
        break;
      case ReduceOp::BOR:
        all = at::bitwise_or(all, next);
        break;
      default:
        all = at::bitwise_xor(all, next);
    }
  }
  if (op != ReduceOp::AVG) return all;
  return c10::isIntegralType(type, false) ? all.div(size, "trunc") : all.div(size);
}

at::Tensor Setting::input(int number) const { return laid_out(*this, values(rank, number)); }

Tensors Setting::inputs() const {
  return for_all([this](int other) { return input(other + 1); });
}

at::Tensor Setting::output() const { return laid_out(*this, at::zeros(shape, type)); }

Tensors Setting::outputs() const {
  return for_all([this](int) { return output(); });
}

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> kAll = {
      {"allreduce", true,
       [](Backend& backend, S s) {
         Tensors tensors = {s.input()};
         return Started{{backend.allreduce(tensors, reducing<c10d::AllreduceOptions>(s))}, tensors};
       },
       [](S s) { return Tensors{s.reduced()}; }},
      {"allreduce_coalesced", true,
       [](Backend& backend, S s) {
         Tensors tensors = s.inputs();
         return Started{
             {backend.allreduce_coalesced(tensors, reducing<c10d::AllreduceCoalescedOptions>(s))},
             tensors};
       },
       [](S s) { return for_all([&](int other) { return s.reduced(other + 1); }); }},
      {"reduce", true,
       [](Backend& backend, S s) {
         Tensors tensors = {s.input()};
         auto options = reducing<c10d::ReduceOptions>(s);
         options.rootRank = s.root;
         return Started{{backend.reduce(tensors, options)}, rank == s.root ? tensors : Tensors()};
       },
       [](S s) { return rank == s.root ? Tensors{s.reduced()} : Tensors(); }},
      {"reduce_scatter", true,
       [](Backend& backend, S s) {
         Tensors outputs = {s.output()};
         Lists inputs = {s.inputs()};
         return Started{
             {backend.reduce_scatter(outputs, inputs, reducing<c10d::ReduceScatterOptions>(s))},
             outputs};
       },
       [](S s) { return Tensors{s.reduced(rank + 1)}; }},
      {"reduce_scatter_base", true,
       [](Backend& backend, S s) {
         at::Tensor output = s.output().reshape({-1}), input = joined(s.inputs());
         return Started{
             {backend._reduce_scatter_base(output, input, reducing<c10d::ReduceScatterOptions>(s))},
             {output}};
       },
       [](S s) { return Tensors{s.reduced(rank + 1).reshape({-1})}; }},
      {"reduce_scatter_tensor_coalesced", true,
       [](Backend& backend, S s) {
         Tensors outputs = {s.output().reshape({-1}), s.output().reshape({-1})},
                 inputs = {joined(s.inputs()), joined(s.inputs())};
         return Started{{backend.reduce_scatter_tensor_coalesced(
                            outputs, inputs, reducing<c10d::ReduceScatterOptions>(s))},
                        outputs};
       },
       [](S s) { return Tensors(2, s.reduced(rank + 1).reshape({-1})); }},
      {"broadcast", false,
       [](Backend& backend, S s) {
         Tensors tensors = {s.input()};
         return Started{{backend.broadcast(tensors, rooted<c10d::BroadcastOptions>(s))}, tensors};
       },
       [](S s) { return Tensors{s.values(s.root)}; }},
      {"allgather", false,
       [](Backend& backend, S s) {
         Tensors inputs = {s.input()};
         Lists outputs = {s.outputs()};
         return Started{{backend.allgather(outputs, inputs, {})}, outputs[0]};
       },
       [](S s) { return from_all(s, 0); }},
      {"allgather_base", false,
       [](Backend& backend, S s) {
         at::Tensor input = s.input().reshape({-1}), output = joined_output(s);
         return Started{{backend._allgather_base(output, input, {})}, {output}};
       },
       [](S s) { return Tensors{joined(from_all(s, 0))}; }},
      {"allgather_coalesced", false,
       [](Backend& backend, S s) {
         Tensors inputs = {s.input(1), s.input(2)}, all;
         Lists outputs;
         for (int other = 0; other < size; ++other) outputs.push_back({s.output(), s.output()});
         for (const auto& list : outputs) all.insert(all.end(), list.begin(), list.end());
         return Started{{backend.allgather_coalesced(outputs, inputs, {})}, all};
       },
       [](S s) {
         Tensors all;
         for (int other = 0; other < size; ++other)
           all.insert(all.end(), {s.values(other, 1), s.values(other, 2)});
         return all;
       }},
      {"allgather_into_tensor_coalesced", false,
       [](Backend& backend, S s) {
         Tensors inputs = {s.input(1).reshape({-1}), s.input(2).reshape({-1})},
                 outputs = {joined_output(s), joined_output(s)};
         return Started{{backend.allgather_into_tensor_coalesced(outputs, inputs, {})}, outputs};
       },
       [](S s) {
         return Tensors{joined(from_all(s, 1)), joined(from_all(s, 2))};
       }},
      {"gather", false,
       [](Backend& backend, S s) {
         Tensors inputs = {s.input()};
         Lists outputs;
         if (rank == s.root) outputs.push_back(s.outputs());
         const auto work = backend.gather(outputs, inputs, rooted<c10d::GatherOptions>(s));
         return Started{{work}, outputs.empty() ? Tensors() : outputs[0]};
       },
       [](S s) { return rank == s.root ? from_all(s, 0) : Tensors(); }},
      {"scatter", false,
       [](Backend& backend, S s) {
         Tensors outputs = {s.output()};
         Lists inputs;
         if (rank == s.root) inputs.push_back(s.inputs());
         return Started{{backend.scatter(outputs, inputs, rooted<c10d::ScatterOptions>(s))},
                        outputs};
       },
       [](S s) { return Tensors{s.values(s.root, rank + 1)}; }},
      {"alltoall", false,
       [](Backend& backend, S s) {
         Tensors outputs = s.outputs(), inputs = s.inputs();
         return Started{{backend.alltoall(outputs, inputs, {})}, outputs};
       },
       [](S s) { return from_all(s, rank + 1); }},
      {"alltoall_base", false,
       [](Backend& backend, S s) {
         at::Tensor input = joined(s.inputs()), output = joined_output(s);
         std::vector<std::int64_t> none, same;
         return Started{{backend.alltoall_base(output, input, none, same, {})}, {output}};
       },
       [](S s) { return Tensors{joined(from_all(s, rank + 1))}; }},
      {"alltoall_base, uneven", false,
       [](Backend& backend, S s) {
         std::vector<std::int64_t> gives, takes;
         for (int other = 0; other < size; ++other) {
           gives.push_back(rows_between(rank, other));
           takes.push_back(rows_between(other, rank));
         }
         at::Tensor input = uneven_input(s, rank), output = at::zeros_like(input);
         return Started{{backend.alltoall_base(output, input, takes, gives, {})}, {output}};
       },
       [](S s) {
         return Tensors{at::cat(for_all([&](int from) {
           int begin = 0;
           for (int to = 0; to < rank; ++to) begin += rows_between(from, to);
           return uneven_input(s, from).narrow(0, begin, rows_between(from, rank));
         }))};
       }},
      {"send, recv", false,
       [](Backend& backend, S s) {
         Tensors outgoing = {s.input()}, incoming = {s.output()};
         const auto sent = backend.send(outgoing, (rank + 1) % size, 3);
         return Started{{backend.recv(incoming, (rank + size - 1) % size, 3), sent}, incoming};
       },
       [](S s) { return Tensors{s.values((rank + size - 1) % size)}; }},
  };
  return kAll;
}
