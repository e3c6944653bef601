#include "handshake.h"

#include <algorithm>
#include <cstdlib>

#include "failure_desk.h"

// Raised when srun's plugin and a node's could misunderstand each other; tests build a second one.
#ifndef TORCH_ENV_PROTOCOL
#define TORCH_ENV_PROTOCOL 1
#endif

namespace torchbridge {
namespace {

const std::string kVersion = std::to_string(TORCH_ENV_PROTOCOL);
// `srun --export=NONE` keeps names that begin with SLURM_.
constexpr char kVersionName[] = "SLURM_TORCH_ENV_PROTOCOL";
constexpr char kNoRank[] = "torch_env.so-is-not-loaded-on-this-node";
constexpr const char* kRankNames[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE"};
// In the environment of slurmstepd's process, which the program does not inherit.
constexpr char kBeenHere[] = "TORCH_ENV_BEEN_HERE";

}  // namespace

void announce_plugin(bool override_user) {
  setenv(kVersionName, kVersion.c_str(), 1);
  for (const char* name : kRankNames) setenv(name, kNoRank, override_user ? 1 : 0);
}

Announcement announcement_in(const EnvMap& environment) {
  Announcement found;
  if (const auto version = environment.get(kVersionName)) {
    found.version = *version;
    found.names.emplace_back(kVersionName);
  }
  if (environment.has(DeskAddress::kVariable)) found.names.emplace_back(DeskAddress::kVariable);
  for (const char* name : kRankNames) {
    if (environment.get(name) == kNoRank) found.names.emplace_back(name);
  }
  return found;
}

EnvMap without(const Announcement& announcement, const EnvMap& environment) {
  EnvMap rest;
  for (const auto& [name, value] : environment) {
    if (std::find(announcement.names.begin(), announcement.names.end(), name) == announcement.names.end()) rest.set(name, value);
  }
  return rest;
}

Status same_version(const Announcement& announcement, const std::string& node) {
  if (announcement.version.empty() || announcement.version == kVersion) return Ok{};
  return Error{"the plugin on " + node + " speaks version " + kVersion + " and that of srun version '" +
               printable(announcement.version) + "': install the same torch_env.so on both"};
}

bool first_time_in_this_process() {
  if (getenv(kBeenHere) != nullptr) return false;
  setenv(kBeenHere, "1", 1);
  return true;
}

}  // namespace torchbridge
