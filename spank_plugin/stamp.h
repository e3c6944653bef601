// What is asked of the plugin, and how srun's tells the nodes' through the environment of the step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/core/launch_options.h"
#include "bridge/base/result.h"
#include "spank_plugin/failure_listener.h"

namespace torchbridge {

// One process loads the plugin once, so there is one of these.
struct Lists {
  std::string site;                         // the arguments in plugstack.conf
  std::optional<std::string> command_line;  // of --torch-env, empty where it stands without one
};

struct Asked {
  std::string list;  // of all places, one behind the other: later entries win
  LaunchOptions options;
};

// Nothing where neither the command line nor TORCHBRIDGE_OPTIONS, if it is not empty, asks for the plugin. Whoever
// comes later wins: plugstack.conf, TORCHBRIDGE_OPTIONS, the command line. The error names the place that the wrong
// list is from.
Result<std::optional<Asked>> asked_by(const Lists& lists, const EnvMap& environment);

// The value of kStampVariable (bridge/core/torch_env.h) is "VERSION PORT TOKEN LIST".
struct Stamp {
  std::string version;  // all versions understand the words up to the token
  int port = 0;         // of srun's reporter; 0 where it has none
  std::string token;
  std::string list;

  // Nothing where srun has no plugin, or nobody asked for it.
  static std::optional<Stamp> from(const EnvMap& environment);
};

// In srun, before the step is launched: its environment is the tasks'. A program on a node without the plugin finds
// words instead of a rank, and cannot take itself for a job of its own; nor can torchrun. What the user exported stays,
// unless the options override it. `reporter` may be null.
void set_stamp(const Asked& asked, const FailureListener* reporter);
// In srun: takes away what it inherited from a step on a node without the plugin.
void clear_stamp();
// Whether another copy of the plugin has set one: plugstack.conf may load it twice.
bool has_stamp();

// On a node: what srun's stamp asks for; where there is none, what this node's lists and TORCHBRIDGE_OPTIONS ask for.
// Nothing where nobody asks; an error too where srun's plugin and this one do not understand each other.
Result<std::optional<LaunchOptions>> asked_options(const Lists& lists, const EnvMap& environment);

// On a node: srun's reporter. The port is 0 where it cannot be reached.
FailureListenerAddress reporter_in(const EnvMap& environment);

// Whether the variable is for the plugin alone, and not for the program to see.
bool is_ours(const std::string& name, const std::string& value);

}  // namespace torchbridge
