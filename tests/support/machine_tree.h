// A machine's files below a folder of their own, written line by line or expanded from
// tests/data/topologies.
#pragma once

#include <filesystem>
#include <string>

#include "bridge/binding/topology.h"

namespace torchbridge {

// The folder goes away with the object.
class MachineTree {
 public:
  MachineTree();
  explicit MachineTree(const std::string& recorded);  // "dgx-a100"; fails the running test when
                                                      // there is no such recording
  ~MachineTree();
  MachineTree(const MachineTree&) = delete;
  MachineTree& operator=(const MachineTree&) = delete;

  const std::string& root() const { return root_; }
  // A newline is added, as the kernel does.
  void write(const std::string& path, const std::string& text);
  void remove(const std::string& path);
  void describe(const std::string& line);  // in the language of tests/data/topologies/README.md

  // REQUIRES: the tree reads without an error.
  Topology topology() const;

 private:
  std::string root_;
};

}  // namespace torchbridge
