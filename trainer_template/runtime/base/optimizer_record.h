// What an optimizer is, without its state: for the reader of a checkpoint, and for Python's param_groups. Needs no
// libtorch.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace torchbridge::train {

struct OptimizerRecord {
  struct Group {
    std::string name;
    std::map<std::string, double> options;  // "lr", "momentum", "beta1", "eps" ...; flags are 0 or 1
    std::vector<std::string> parameters;    // in their order, those of all ranks

    bool operator==(const Group&) const = default;
  };
  std::string kind;  // "sgd", "adam", "adamw"; empty where it is not known
  std::vector<Group> groups;

  bool operator==(const OptimizerRecord&) const = default;
};

}  // namespace torchbridge::train
