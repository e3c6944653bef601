#include "bridge/core/other_ranks.h"

#include "bridge/base/message_text.h"
#include "bridge/core/launch_facts.h"
#include "bridge/core/launcher.h"

namespace torchbridge {
namespace {

// Of launchers that are not in the table of launcher.cpp, and what is left of those in it where a
// script or a container passes on a part of their variables.
constexpr struct {
  const char* rank;
  const char* size;  // or empty
  int first = 0;     // the least rank number, which a single process may have
} kRankVariables[] = {
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},  // MVAPICH2
    {"MPIRUN_RANK", "MPIRUN_NPROCS"},                // its mpirun_rsh
    {"ALPS_APP_PE", ""},                             // Cray's aprun
    {"PMI_RANK", "PMI_SIZE"},
    {"PMI_ID", "PMI_SIZE"},
    {"PMIX_RANK", ""},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_RANK", ""},
    {"MP_CHILD", "MP_PROCS"},  // IBM's poe
    {"LSF_PM_TASKID", "", 1},  // LSF's
    {"PBS_VNODENUM", ""},      // pbsdsh's
    {"PBS_TASKNUM", "", 1},    // the same; a job's script is task 1
    {"SLURM_PROCID", ""},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"HOROVOD_RANK", "HOROVOD_SIZE"},
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

// How the process can be told of the others.
std::string remedy(Alone alone) {
  return alone == Alone::kRank
             ? "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every rank"
             : "give --nnodes and --rdzv-endpoint, or --standalone for separate runs";
}

std::int64_t number(const EnvMap& environment, const char* name) {
  return parse_integer(environment.get(name).value_or(""), 0, kMaxRanks).value_or(0);
}

Status check_rank_variables(const EnvMap& environment, Alone alone) {
  for (const auto& [rank_name, size_name, first] : kRankVariables) {
    const auto rank = number(environment, rank_name), size = number(environment, size_name);
    if (!environment.has(rank_name) || (rank <= first && size <= 1)) continue;
    const std::string of_size = size > 0 ? formatted("' of {}='{}", size_name, size) : "";
    return Error{
        formatted("this process is {}='{}{}', but no launcher is recognised, and it would be the "
                  "only rank: {}, or unset {} for a program of one rank",
                  rank_name, rank, of_size, remedy(alone), rank_name)};
  }
  return Ok{};
}

}  // namespace

std::string larger_job(const EnvMap& environment, Alone alone) {
  const auto tasks = alone == Alone::kRank ? number(environment, "SLURM_NTASKS") : 0;
  const auto nodes = number(environment, "SLURM_JOB_NUM_NODES");
  // The two others are the first one's.
  const auto components = number(environment, "SLURM_HET_SIZE");
  const std::string job = printable(environment.get("SLURM_JOB_ID").value_or(""));
  if (components > 1) return formatted("job {} of Slurm has {} components", job, components);
  if (tasks <= 1 && nodes <= 1) return "";
  if (nodes <= 1) return formatted("job {} of Slurm has {} tasks", job, tasks);
  if (tasks <= 1) return formatted("job {} of Slurm has {} nodes", job, nodes);
  return formatted("job {} of Slurm has {} tasks on {} nodes", job, tasks, nodes);
}

bool has_placed_ranks(int tasks, const EnvMap& environment) {
  return tasks > 1 || (tasks == 1 && !larger_job(environment, Alone::kAgent).empty());
}

Result<std::string> sign_of_other_ranks(const EnvMap& environment,
                                        const std::vector<std::string>& ancestors, Alone alone) {
  if (const auto checked = check_rank_variables(environment, alone); !checked)
    return checked.error();
  const std::string self = alone == Alone::kRank ? "this process is the only rank, but "
                                                 : "this agent is the only one of its run, but ";
  // Of a cleaned environment the id may be all that is left.
  const bool has_job = environment.has("SLURM_JOB_ID") && (environment.has("SLURM_JOB_NUM_NODES") ||
                                                           environment.has("SLURM_HET_SIZE"));
  if (const std::string job = has_job ? larger_job(environment, alone) : ""; !job.empty())
    return formatted("{}{}: start it with srun", self, job);
  // As often for pods that are separate runs.
  if (number(environment, "JOB_COMPLETION_INDEX") > 0) {
    return formatted(
        "{}JOB_COMPLETION_INDEX='{}' is of an indexed job of Kubernetes: "
        "for one run of all pods {}",
        self, printable(*environment.get("JOB_COMPLETION_INDEX")), remedy(alone));
  }
  for (const std::string& name : ancestors) {
    const Launcher* launcher = launcher_with_process(name);
    if (launcher == nullptr) continue;
    if (has_job && launcher->name == std::string_view("slurm"))
      break;  // a batch script, whose job has one task
    return formatted(
        "{}{} is above it, and no variable of {} is set: pass them on (env -i and --cleanenv of "
        "containers remove them), or {}",
        self, name, launcher->name, remedy(alone));
  }
  return std::string();
}

}  // namespace torchbridge
