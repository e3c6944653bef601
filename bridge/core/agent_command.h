// Agents, which start workers of their own, recognized by their command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bridge/base/env_map.h"
#include "bridge/base/result.h"

namespace torchbridge {

// Has the token of a run over several nodes (docs/use/run_nodes.md). Workers do not get it.
inline constexpr char kTokenVariable[] = "TORCHBRIDGE_RDZV_TOKEN";
// The same on its way through Slurm's --export, which keeps names that begin with SLURM_. The
// plugin sets it, and removes it again in batch scripts and tasks.
inline constexpr char kCarriedTokenVariable[] = "SLURM_TORCH_ENV_TOKEN";
// Characters of a token. 32 hexadecimal digits hold 128 bits.
inline constexpr std::size_t kShortestToken = 16, kLongestToken = 1024;

// The token without the blanks around it. An error, which does not contain the token, begins with
// `source`: the token is too short or too long.
Result<std::string> checked_token(const std::string& source, std::string_view token);

// Whether the program, or the text that a shell runs, is torchrun or `torchbridge run`, or starts
// it, as `uv run torchrun train.py`. Commands in a script file are not read. `program`: its name
// and arguments; with srun's --multi-prog the content of the file is one of them.
bool is_agent(const std::vector<std::string>& program);

// Each torchrun that the program is, or that a shell's text starts.
struct Torchruns {
  // The options of those that wait for the agents of other nodes: without --standalone, --nnodes=1
  // and an endpoint on localhost. Names with hyphens, and values, which flags have not. Options of
  // the script do not count.
  std::vector<EnvMap> of_nodes;
  // There are others, which PET_* would change: without --standalone and --nnodes.
  bool has_one_alone = false;
};
Torchruns torchruns_in(const std::vector<std::string>& program);

}  // namespace torchbridge
