// OpenMPI, Hydra, Flux and jsrun: valid and malformed variables.
#include <gtest/gtest.h>

#include "bridge/core/launchers/launchers.h"
#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

const EnvMap kOpenMpi = recorded_environment("openmpi-4.1-2n3t", 2);
const EnvMap kHydra = recorded_environment("mpich-4.0-2n3t", 2);
// As flux-core's shell sets them (doc/man7/flux-environment.rst).
const EnvMap kFlux = {{"FLUX_TASK_RANK", "2"},
                      {"FLUX_JOB_SIZE", "4"},
                      {"FLUX_TASK_LOCAL_ID", "0"},
                      {"FLUX_JOB_NNODES", "2"},
                      {"FLUX_JOB_ID",
                       "\xc6\x92"
                       "3yVm"},
                      {"PMI_FD", "7"},
                      {"PMI_RANK", "2"},
                      {"PMI_SIZE", "4"}};
const EnvMap kJsrun = {{"JSM_NAMESPACE_RANK", "2"},       {"JSM_NAMESPACE_SIZE", "4"},
                       {"JSM_NAMESPACE_LOCAL_RANK", "0"}, {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "1"},           {"LSB_JOBID", "99"}};

TEST(Mpirun, ReadsPositionAndJob) {
  const auto openmpi = read_openmpi(kOpenMpi);
  ASSERT_TRUE(openmpi) << openmpi.error().message;
  EXPECT_EQ(openmpi->rank, 2);
  EXPECT_EQ(openmpi->local_size, 1);
  EXPECT_EQ(openmpi->job_id, *kOpenMpi.get("PMIX_NAMESPACE"));
  const auto hydra = read_hydra(kHydra);
  ASSERT_TRUE(hydra) << hydra.error().message;
  // The variable is for a daemon, of which a node may have several.
  EXPECT_EQ(hydra->local_size, 0);
  EXPECT_TRUE(hydra->needs_node_exchange());
  const auto flux = read_flux(kFlux);
  ASSERT_TRUE(flux) << flux.error().message;
  EXPECT_EQ(flux->job_id, "3yVm");
  EXPECT_EQ(flux->local_size, 0);  // not known where there are several nodes
  EXPECT_TRUE(flux->needs_node_exchange());
  const auto jsrun = read_jsrun(kJsrun);
  ASSERT_TRUE(jsrun) << jsrun.error().message;
  EXPECT_EQ(jsrun->local_size, 2);
  EXPECT_EQ(jsrun->job_id, "99");
}

TEST(Mpirun, OneNodeNeedsNoNodeExchange) {
  EnvMap flux = kFlux, jsrun = kJsrun;
  flux.set("FLUX_JOB_NNODES", "1");
  jsrun.set("JSM_NAMESPACE_LOCAL_SIZE", "4");
  for (const auto& facts : {read_flux(flux), read_jsrun(jsrun)}) {
    ASSERT_TRUE(facts) << facts.error().message;
    EXPECT_FALSE(facts->needs_node_exchange());
    EXPECT_EQ(facts->local_rank, 2);
    EXPECT_EQ(facts->local_size, 4);
    EXPECT_NE(facts->node_key, "");
  }
}

TEST(Mpirun, AVariableThatIsMissingIsNamedWithTheRemedy) {
  EXPECT_EQ(
      read_openmpi({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).error().message,
      "OMPI_COMM_WORLD_LOCAL_SIZE is not set, although OMPI_COMM_WORLD_RANK is: start the program "
      "with mpirun, or "
      "unset OMPI_COMM_WORLD_RANK");
}

TEST(Mpirun, NamesTheVariableThatIsWrong) {
  const struct {
    const EnvMap& environment;
    Result<LaunchFacts> (*read)(const EnvMap&);
    const char* name;
    const char* value;
    const char* message;
  } kCases[] = {
      {kOpenMpi, read_openmpi, "OMPI_COMM_WORLD_RANK", "3",
       "OMPI_COMM_WORLD_RANK='3': expected an integer from 0 to 2"},
      {kOpenMpi, read_openmpi, "OMPI_COMM_WORLD_SIZE", "",
       "OMPI_COMM_WORLD_SIZE='': expected an integer from 1 to 10000000"},
      {kOpenMpi, read_openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "9",
       "OMPI_COMM_WORLD_LOCAL_SIZE='9': expected an integer from 1 to 3"},
      {kOpenMpi, read_openmpi, "PMIX_RANK", "0",
       "OMPI_COMM_WORLD_RANK='2', but PMIX_RANK='0': the variables of two launchers are mixed; "
       "unset those of the "
       "outer one (env -u NAME)"},
      {kHydra, read_hydra, "PMI_RANK", "-1", "PMI_RANK='-1': expected an integer from 0 to 2"},
      {kHydra, read_hydra, "MPI_LOCALNRANKS", "0",
       "MPI_LOCALNRANKS='0': expected an integer from 1 to 3"},
      {kHydra, read_hydra, "MPI_LOCALRANKID", "1",
       "MPI_LOCALRANKID='1': expected an integer from 0 to 0"},
      {kHydra, read_hydra, "PMI_SIZE", "99999999999999999999",
       "PMI_SIZE='99999999999999999999': expected an integer from 1 to 10000000"},
      {kFlux, read_flux, "FLUX_TASK_RANK", "4",
       "FLUX_TASK_RANK='4': expected an integer from 0 to 3"},
      {kFlux, read_flux, "FLUX_JOB_NNODES", "5",
       "FLUX_JOB_NNODES='5': expected an integer from 1 to 4"},
      {kJsrun, read_jsrun, "JSM_NAMESPACE_LOCAL_RANK", "2",
       "JSM_NAMESPACE_LOCAL_RANK='2': expected an integer from 0 to 1"},
  };
  for (const auto& test : kCases) {
    EnvMap environment = test.environment;
    environment.set(test.name, test.value);
    const auto facts = test.read(environment);
    ASSERT_FALSE(facts) << test.message;
    EXPECT_EQ(facts.error().message, test.message);
  }
}

TEST(Mpirun, HydraWithoutADescriptorIsAnErrorWithRemedy) {
  const EnvMap environment = {
      {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}, {"PMI_PORT", "n0:4711"}, {"PMI_ID", "0"}};
  ASSERT_TRUE(detect_hydra(environment));
  EXPECT_EQ(read_hydra(environment).error().message,
            "hydra: PMI_PORT is set, but PMI_RANK is not: start mpiexec without -pmi-port");
}

}  // namespace
}  // namespace torchbridge
