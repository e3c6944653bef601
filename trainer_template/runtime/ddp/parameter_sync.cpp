#include "trainer_template/runtime/ddp/parameter_sync.h"

#include <sstream>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "bridge/base/message_text.h"

namespace torchbridge::train {
namespace {

std::string description(const at::Tensor& parameter) {
  std::ostringstream text;
  text << parameter.scalar_type() << ' ' << parameter.sizes();
  if (parameter.layout() != at::kStrided) {
    text << ' ' << parameter.layout();
  } else if (!parameter.is_contiguous()) {
    text << " with strides " << parameter.strides();
  }
  if (!parameter.requires_grad()) text << " without gradient";
  return text.str();
}

// A line a parameter: name, tab, description.
std::string listing(const NamedTensors& parameters) {
  std::string text;
  for (const auto& [name, parameter] : parameters)
    text += name + "\t" + description(parameter) + "\n";
  return text;
}

struct Line {
  std::string name, shape;
};

bool next_line(std::istringstream& text, Line& line) {
  return std::getline(text, line.name, '\t') && std::getline(text, line.shape);
}

// Of two listings that differ: the first difference.
std::string difference(const std::string& of_first, const std::string& own, int rank) {
  std::istringstream theirs(of_first), ours(own);
  const std::string self = formatted("rank {}", rank);
  while (true) {
    Line expected, found;
    const bool has_expected = next_line(theirs, expected), has_found = next_line(ours, found);
    if (!has_found)
      return formatted("parameter '{}' is on rank 0, but not on {}", expected.name, self);
    if (!has_expected)
      return formatted("parameter '{}' is on {}, but not on rank 0", found.name, self);
    if (expected.name != found.name) {
      return formatted("parameter '{}' of rank 0 is '{}' on {}", expected.name, found.name, self);
    }
    if (expected.shape != found.shape) {
      return formatted("parameter '{}' is {} on rank 0, but {} on {}", expected.name,
                       expected.shape, found.shape, self);
    }
  }
}

}  // namespace

void check_same_parameters(const NamedTensors& parameters, ProcessGroup& group) {
  if (group.world_size() == 1) return;
  const std::string own = listing(parameters);
  const std::string of_first = group.broadcast(own);
  const bool differs = own != of_first;
  const auto reporter =
      static_cast<int>(group.minimum(differs ? group.rank() : group.world_size()));
  if (reporter == group.world_size()) return;
  throw TrainError(formatted(
      "{}: all ranks must train the same model",
      group.broadcast(reporter == group.rank() ? difference(of_first, own, group.rank()) : "",
                      reporter)));
}

void broadcast_values(const std::vector<at::Tensor>& tensors, ProcessGroup& group, int root) {
  constexpr std::size_t kMessageBytes = std::size_t{250} << 20;
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.detach());
  if (!values.empty()) c10d::broadcast_coalesced(group.c10d(), values, kMessageBytes, root);
}

}  // namespace torchbridge::train
