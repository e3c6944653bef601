// Which of several launchers, whose variables a process has, started it.
#include "bridge/core/launcher.h"

#include <gtest/gtest.h>

#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

// What the inner launcher's processes see: its variables, and those of the outer one that it does
// not set itself.
EnvMap inside(EnvMap outer, const EnvMap& inner) {
  for (const auto& [name, value] : inner) outer.set(name, value);
  return outer;
}

std::string name_of(const EnvMap& environment, std::int64_t process_id = 0) {
  const Launcher* launcher = innermost_launcher(environment, process_id);
  if (launcher == nullptr) return "none";
  const auto facts = read_launcher(*launcher, environment);
  return facts || launcher->kind != Launcher::Kind::kMpi ? launcher->name : facts.error().message;
}

const EnvMap kStep = recorded_environment("slurm-22.05-4n8t-uneven", 6);
const EnvMap kPmixStep = recorded_environment("slurm-22.05-2n3t-pmix", 2);
const EnvMap kPmi2Step = recorded_environment("slurm-22.05-2n3t-pmi2", 2);
const EnvMap kOpenMpi = recorded_environment("openmpi-4.1-1n4t", 1);
const EnvMap kOpenMpi5 = recorded_environment("openmpi-5.0-2n3t", 2);
const EnvMap kMpich = recorded_environment("mpich-4.0-2n3t", 2);
const EnvMap kFlux = {{"FLUX_TASK_RANK", "1"},     {"FLUX_JOB_SIZE", "4"},
                      {"FLUX_TASK_LOCAL_ID", "1"}, {"FLUX_JOB_NNODES", "2"},
                      {"FLUX_JOB_ID", "f3yVm"},    {"PMI_FD", "7"},
                      {"PMI_RANK", "1"},           {"PMI_SIZE", "4"}};
const EnvMap kJsrun = {{"JSM_NAMESPACE_RANK", "1"},
                       {"JSM_NAMESPACE_SIZE", "4"},
                       {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                       {"JSM_NAMESPACE_LOCAL_SIZE", "2"}};
const EnvMap kSpectrum = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const EnvMap kPals = {{"PALS_RANKID", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};

TEST(JobKey, DiffersBetweenJobsAndNotBetweenRanks) {
  const EnvMap rank0 = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "0"}};
  const EnvMap rank1 = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "1"}};
  const EnvMap other_step = {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "2"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(job_key(rank0), job_key(rank1));
  EXPECT_NE(job_key(rank0), job_key(other_step));
  EXPECT_NE(job_key({{"PALS_APID", "7"}}), job_key({{"FLUX_JOB_ID", "7"}}));
  EXPECT_EQ(job_key({{"HOME", "/root"}}), "");
}

TEST(StartsRanks, KnowsMpirunAndItsDaemonsByName) {
  for (const char* name :
       {"mpirun", "mpiexec.hydra", "orterun", "orted", "prterun", "prted", "hydra_pmi_proxy"}) {
    EXPECT_TRUE(starts_ranks(name)) << name;
  }
  for (const char* name : {"", "slurmstepd", "srun", "python3", "my_mpirun"})
    EXPECT_FALSE(starts_ranks(name)) << name;
}

TEST(FindLauncher, TheInnermostWins) {
  const struct {
    const char* what;
    EnvMap environment;
    const char* expected;
  } kCases[] = {
      {"nothing", {{"HOME", "/"}}, "none"},
      {"a job, but no step", {{"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}}, "none"},
      {"mpirun in a step", inside(kStep, kOpenMpi), "openmpi"},
      {"mpirun 5 in a pmix step", inside(kPmixStep, kOpenMpi5), "openmpi"},
      {"mpiexec of MPICH in a pmi2 step", inside(kPmi2Step, kMpich), "hydra"},
      {"a pmix step in mpirun", inside(kOpenMpi, kPmixStep), "slurm"},
      {"mpirun in a Flux task", inside(kFlux, kOpenMpi), "openmpi"},
      {"mpiexec of MPICH in a Flux task", inside(kFlux, kMpich), "hydra"},
      {"a Flux task in a step", inside(kPmi2Step, kFlux), "flux"},
      {"jsrun", kJsrun, "jsrun"},
      {"jsrun of Spectrum MPI, which is OpenMPI", inside(kSpectrum, kJsrun), "jsrun"},
      {"mpirun in a task of jsrun",
       inside(inside(kSpectrum, kJsrun), recorded_environment("openmpi-4.1-1n4t", 3)), "openmpi"},
      {"a Flux task under jsrun", inside(inside(kSpectrum, kJsrun), kFlux), "flux"},
      {"PALS", kPals, "pals"},
      {"a step dressed up as PALS", inside(kStep, {{"PALS_RANKID", "6"}}), "slurm"},
      {"mpirun under PALS", inside(kPals, kOpenMpi), "openmpi"},
      {"an unknown launcher with PMI",
       {{"PMI_FD", "5"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       "pmi"},
  };
  for (const auto& test : kCases) EXPECT_EQ(name_of(test.environment), test.expected) << test.what;
}

TEST(FindLauncher, ATaskThatSlurmStartedItselfIsSlurms) {
  EnvMap environment = inside(kOpenMpi, kStep);
  environment.set("SLURM_TASK_PID", "4711");
  EXPECT_EQ(name_of(environment, 4711), "slurm");
  EXPECT_EQ(name_of(environment, 4712), "openmpi");
}

TEST(FindLauncher, TwoMpirunsThatDifferAreAnErrorWithBothSides) {
  EXPECT_EQ(name_of(inside(kOpenMpi, kMpich)),
            "the variables of openmpi give rank 1 of 4, but the variables of hydra give rank 2 of "
            "3: one was started "
            "inside the other: "
            "unset the variable of the outer one, OMPI_COMM_WORLD_RANK or MPI_LOCALNRANKS, for the "
            "inner one (env -u "
            "NAME mpiexec ...)");
  EnvMap agreeing = inside(kOpenMpi, kMpich);
  agreeing.set("PMI_RANK", "1");
  agreeing.set("PMI_SIZE", "4");
  EXPECT_EQ(name_of(agreeing), "openmpi");
}

TEST(FindLauncher, AnUnknownPmixLauncherIsNoWorldOfOne) {
  const EnvMap environment = {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prte.1"}};
  EXPECT_NE(name_of(environment).find("PMIX_RANK='3' and PMIX_NAMESPACE='prte.1' are set"),
            std::string::npos);
}

}  // namespace
}  // namespace torchbridge
