// The kind, options and parameter groups of an optimizer, without its state: for the manifest, and for Python's
// param_groups.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace torchbridge::train {

struct OptimizerRecord {
  struct GroupRecord {
    std::string name;
    std::map<std::string, double> options;  // "lr", "momentum", "beta1", "eps" ...; flags are 0 or 1
    std::vector<std::string> parameters;    // names in the order of the group, those of all ranks

    bool operator==(const GroupRecord&) const = default;
  };
  std::string kind;  // a name of optimizer_kinds(), such as "sgd"; empty if unknown
  std::vector<GroupRecord> groups;

  bool operator==(const OptimizerRecord&) const = default;
};

}  // namespace torchbridge::train
