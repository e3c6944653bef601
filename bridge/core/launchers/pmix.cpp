#include "bridge/base/message_text.h"
#include "bridge/core/launchers/launchers.h"

namespace torchbridge {

bool detect_pmix(const EnvMap& environment) {
  return environment.has("PMIX_RANK") && environment.has("PMIX_NAMESPACE");
}

std::string_view pmix_server_uri(const EnvMap& environment, std::string_view beginning) {
  std::string_view newest;
  for (const auto& [name, uri] : environment) {
    if (name.starts_with("PMIX_SERVER_URI") && uri.starts_with(beginning))
      newest = uri;  // names come in ascending order
  }
  return newest;
}

// Taking such a process for a world of one would start as many worlds as there are ranks.
Result<LaunchFacts> read_pmix(const EnvMap& environment) {
  return Error{formatted(
      "PMIX_RANK='{}' and PMIX_NAMESPACE='{}' are set by an unknown launcher, and no variable "
      "contains the number of ranks: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset "
      "both for a single process",
      printable(*environment.get("PMIX_RANK")), printable(*environment.get("PMIX_NAMESPACE")))};
}

}  // namespace torchbridge
