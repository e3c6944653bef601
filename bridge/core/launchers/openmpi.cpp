#include <torchbridge/core/launchers/openmpi.h>

namespace torchbridge {
namespace {

constexpr int kMaxRanks = 10'000'000;

}  // namespace

bool detect_openmpi(const EnvMap& environment) { return environment.has("OMPI_COMM_WORLD_RANK"); }

Result<LaunchFacts> read_openmpi(const EnvMap& environment) {
  const auto size = environment.required_integer("OMPI_COMM_WORLD_SIZE", 1, kMaxRanks);
  if (!size) return size.error();
  const auto rank = environment.required_integer("OMPI_COMM_WORLD_RANK", 0, *size - 1);
  if (!rank) return rank.error();
  const auto local_size = environment.required_integer("OMPI_COMM_WORLD_LOCAL_SIZE", 1, *size);
  if (!local_size) return local_size.error();
  const auto local_rank = environment.required_integer("OMPI_COMM_WORLD_LOCAL_RANK", 0, *local_size - 1);
  if (!local_rank) return local_rank.error();

  LaunchFacts facts;
  facts.launcher = "openmpi";
  facts.rank = static_cast<int>(*rank);
  facts.world_size = static_cast<int>(*size);
  facts.local_rank = static_cast<int>(*local_rank);
  facts.local_size = static_cast<int>(*local_size);
  // "1234567890.1" in 4.1: the namespace is the job as mpirun's runtime knows it.
  facts.job_id = environment.get("PMIX_NAMESPACE").value_or("");
  if (facts.local_size == facts.world_size) facts.tasks_per_node = {facts.world_size};
  return facts;
}

}  // namespace torchbridge
