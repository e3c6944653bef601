// The options that request the plugin, and the request that srun's plugin passes to the nodes' in
// the step's environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"
#include "bridge/core/launch_options.h"
#include "spank_plugin/failure_listener.h"

namespace torchbridge {

// The texts that the plugin is given in a process of Slurm.
struct OptionLists {
  std::string site;  // the arguments in plugstack.conf
  // The list of --torch-env, empty for the bare option; none: not given.
  std::optional<std::string> command_line;
};

struct MergedOptions {
  std::string list;  // the lists of all sources joined by commas: later entries win
  LaunchOptions options;
};

// Nothing where neither the command line nor a non-empty TORCHBRIDGE_OPTIONS requests the plugin.
// Later sources win: plugstack.conf, TORCHBRIDGE_OPTIONS, the command line. An error names the
// source of the wrong list.
Result<std::optional<MergedOptions>> merged_options(const OptionLists& lists,
                                                    const EnvMap& environment);

// What srun's plugin requests of the nodes'. The value of kStepRequestVariable
// (bridge/core/torch_env.h) is "VERSION PORT SECRET LIST".
struct StepRequest {
  std::string version;  // all versions have the same format up to the port
  int port = 0;         // of srun's FailureListener; 0 where it has none
  std::string secret;   // random_token(), which srun, the nodes and the tasks of the step share and
                        // never send: each use has a key that is made from it; empty: none
  std::string list;

  // Nothing where srun has no plugin, or the plugin is not requested.
  static std::optional<StepRequest> from(const EnvMap& environment);
};

inline constexpr char kNotLoaded[] = "torch_env.so-is-not-loaded-on-this-node";

// In srun, before the step is launched: srun's environment becomes that of the tasks. Sets the
// request, and kNotLoaded as RANK, LOCAL_RANK, WORLD_SIZE and PET_NNODES, which the nodes' plugin
// removes: a program or torchrun on a node without the plugin then fails instead of running as a
// job of one. Values that the user exported stay, unless the options override them. `secret` may be
// empty, and `port` 0.
void set_step_request(const MergedOptions& merged, const std::string& secret, int port);
// In srun, sbatch and salloc: removes what the plugin, `torchbridge exec` and `torchbridge run` set
// for the process that has started it. It holds for no task of what is launched or submitted.
void clear_outer_step();
// In srun, sbatch and salloc: sets kCarriedTokenVariable where the environment has a token.
void carry_token();
// Whether another copy of the plugin has set the request: plugstack.conf may load the plugin twice.
bool has_step_request();

// On a node: the options of srun's request; without a request those of this node's lists and
// TORCHBRIDGE_OPTIONS. Nothing where the plugin is not requested. An error, too, where srun's
// plugin has another protocol version.
Result<std::optional<LaunchOptions>> requested_options(const OptionLists& lists,
                                                       const EnvMap& environment);

// On a node: where srun listens. The port is 0 where srun does not listen or its address is
// unknown.
FailureListenerAddress listener_in(const EnvMap& environment);

// On a node: the environment as the user exported it, without the variables that are only for the
// plugin, and with the token that was carried, where --export has removed it.
EnvMap without_plugin_variables(const EnvMap& environment);

}  // namespace torchbridge
