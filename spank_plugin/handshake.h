// What srun's plugin tells the nodes' plugin through the environment of the step, and what it leaves for programs on a node
// that has no plugin.
#pragma once

#include <string>
#include <vector>

#include <torchbridge/core/env_map.h>
#include <torchbridge/core/result.h>

namespace torchbridge {

// In srun, before the step is launched: its environment is the tasks'. A program on a node without the plugin finds words
// instead of a rank, and cannot take itself for a job of its own. What the user exported stays, unless `override_user`.
void announce_plugin(bool override_user);

// On a node: what srun's plugin announced.
struct Announcement {
  std::string version;             // empty where srun has no plugin
  std::vector<std::string> names;  // the variables that are ours, for the program not to see
};
Announcement announcement_in(const EnvMap& environment);

// The environment as the user gave it.
EnvMap without(const Announcement& announcement, const EnvMap& environment);

// An error where srun's plugin and this node's do not understand each other.
Status same_version(const Announcement& announcement, const std::string& node);

// Whether this process was here before: plugstack.conf may load the plugin twice, also as two files.
bool first_time_in_this_process();

}  // namespace torchbridge
