// Compares each collective of the MPI backend with gloo and with the expected values, over
// operators, types, shapes and memory layouts, on as many ranks as mpirun starts, many in progress
// at once. Prints one line for each failure; exit code 1 after any.
// Usage: mpirun -n N mpi_matrix STORE_FILE
#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "backends/mpi/mpi_backend.h"
#include "tests/programs/mpi/collectives.h"
#include "tests/programs/mpi/expectations.h"

namespace {

using c10d::ReduceOp;
using torchbridge::mpi::MpiBackend;
using torchbridge::mpi::MpiOptions;

int with_gloo = 0, by_formula = 0;

at::Tensor comparable(const at::Tensor& tensor) {
  // gloo adds bools as bytes: 2 is true as well.
  const at::Tensor plain = tensor.contiguous();
  return tensor.scalar_type() == at::kBool ? plain.view(at::kByte).ne(0) : plain;
}

bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || !at::equal(comparable(a[i]), comparable(b[i])))
      return false;
  }
  return true;
}

// On many ranks and few cores gloo is slow: above four ranks it is compared for each operator and
// each type, not each pair of them.
bool asks_gloo(const Setting& setting) {
  if (std::ranges::count(setting.shape, 0) > 0) return false;  // gloo does not support it
  return size <= 4 || setting.op == ReduceOp::SUM || setting.type == at::kLong;
}

struct Run {
  Started started;
  std::string error;

  Run(const Collective& collective, c10d::Backend& backend, const Setting& setting) {
    error = error_of([&] { started = collective.start(backend, setting); });
  }
  void wait() {
    if (!error.empty()) return;
    error = error_of([&] {
      for (const auto& work : started.works) work->wait();
    });
    started.works.clear();
  }
};

void compare(const Collective& collective, c10d::Backend& mpi, c10d::Backend& gloo,
             const std::vector<Setting>& settings) {
  // Once, for contiguous memory: the layout does not change gloo's result.
  static std::map<std::string, Run> answers;
  const auto key = [&](Setting setting) {
    setting.strided = false;
    return collective.name + setting.name();
  };
  std::vector<Run*> asked;
  for (Setting setting : settings) {
    setting.strided = false;
    if (answers.contains(key(setting)) || !asks_gloo(setting)) continue;
    asked.push_back(&answers.emplace(key(setting), Run(collective, gloo, setting)).first->second);
  }
  for (Run* run : asked) run->wait();

  std::vector<Run> runs;
  for (const Setting& setting : settings) runs.emplace_back(collective, mpi, setting);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string name = std::string(collective.name) + " of " + settings[i].name();
    runs[i].wait();
    if (!runs[i].error.empty()) {
      fail(name + ": " + runs[i].error);
      continue;
    }
    const Tensors& found = runs[i].started.results;
    ++by_formula;
    expect(same(found, collective.expected(settings[i])), name + ": other values than expected");
    const auto answer = answers.find(key(settings[i]));
    if (answer == answers.end() || !answer->second.error.empty()) continue;
    ++with_gloo;
    expect(same(found, answer->second.started.results), name + ": other values than gloo's");
  }
}

bool exists(ReduceOp::RedOpType op, at::ScalarType type) {
  if (c10::isComplexType(type) && (op == ReduceOp::MIN || op == ReduceOp::MAX)) return false;
  if (!c10::isIntegralType(type, true) && op >= ReduceOp::BAND) return false;
  return type != at::kBool || op != ReduceOp::AVG;
}

void matrix(c10d::Backend& mpi, c10d::Backend& gloo, std::int64_t longest) {
  constexpr at::ScalarType kTypes[] = {
      at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,         at::kChar,
      at::kShort, at::kInt,    at::kLong, at::kBool,     at::kComplexFloat, at::kComplexDouble};
  constexpr ReduceOp::RedOpType kOps[] = {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT,
                                          ReduceOp::MIN, ReduceOp::MAX, ReduceOp::BAND,
                                          ReduceOp::BOR, ReduceOp::BXOR};
  const std::vector<std::int64_t> kShapes[] = {{},        {1},   {7}, {3, 5},
                                               {2, 3, 4}, {300}, {0}, {2, 0, 3}};
  for (const Collective& collective : all_collectives()) {
    std::vector<Setting> settings;
    for (const at::ScalarType type : kTypes) {
      for (const auto op : kOps) {
        if (collective.reduces && exists(op, type))
          settings.push_back({type, {7}, false, op, size - 1});
      }
      settings.push_back({type, {3, 4}, true, ReduceOp::SUM, 0});
    }
    for (const auto& shape : kShapes) {
      for (const bool strided : {false, true})
        settings.push_back({at::kFloat, shape, strided, ReduceOp::SUM, size / 2});
    }
    settings.push_back({at::kFloat, {longest}, false, ReduceOp::SUM, 0});
    settings.push_back({at::kHalf, {longest}, false, ReduceOp::MAX, 0});
    compare(collective, mpi, gloo, settings);
  }
}

// The titles in a profile, and the values of all collectives' futures.
void titles_and_futures(c10d::Backend& mpi) {
  static std::set<std::string> titles;
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                              titles.insert(function.name());
                              return std::unique_ptr<at::ObserverContext>();
                            }).scopes({at::RecordScope::USER_SCOPE}));
  for (const Collective& collective : all_collectives()) {
    const Setting setting;
    const std::string name = collective.name;
    const Started started = collective.start(mpi, setting);
    Tensors of_future;
    const at::IValue value =
        (started.works[0]->getFuture()->wait(), started.works[0]->getFuture()->value());
    if (value.isTensorList()) {
      of_future = value.toTensorVector();
    } else {
      for (const at::IValue& list : value.toListRef()) {
        for (const at::Tensor& tensor : list.toTensorVector()) of_future.push_back(tensor);
      }
    }
    for (const auto& work : started.works) {
      work->wait();
      expect(work->isCompleted() && work->isSuccess() && work->exception() == nullptr,
             name + ": a work that has ended well");
    }
    if (!started.results.empty())
      expect(same(of_future, collective.expected(setting)), name + ": other values in the future");
  }
  mpi.barrier({})->wait();
  at::removeCallback(handle);
  for (const char* title :
       {"mpi:all_reduce", "mpi:reduce", "mpi:reduce_scatter", "mpi:_reduce_scatter_base",
        "mpi:broadcast", "mpi:all_gather", "mpi:_all_gather_base", "mpi:gather", "mpi:scatter",
        "mpi:all_to_all", "mpi:send", "mpi:recv", "mpi:barrier"}) {
    expect(titles.contains(title), std::string("no profiling title ") + title);
  }
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
    // One: with two, libtorch 2.11 assigns the name of the last collective from both without a
    // lock, and one of more than 15 characters, such as ALLREDUCE_COALESCED, is freed twice now and
    // then.
    options->threads = 1;
    c10d::ProcessGroupGloo gloo(c10::make_intrusive<c10d::FileStore>(arguments[1], size), rank,
                                size, options);
    titles_and_futures(*world);
    matrix(*world, gloo, 70001);
    // The same in parts and blocks, as for counts that are too large for MPI's ints.
    auto in_parts = c10::make_intrusive<MpiOptions>();
    in_parts->largest_count = 24;
    matrix(*MpiBackend::create(in_parts), gloo, 301);
    world->barrier({})->wait();
  }
  if (rank == 0)
    std::printf("%d ranks: %d results, %d of them compared with gloo's, %d failures\n", size,
                by_formula, with_gloo, failures);
  return failures > 0 ? 1 : 0;
}
