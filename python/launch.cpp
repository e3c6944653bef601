// torchbridge._launch: how this process was started, for Python. No MPI.
#include <pybind11/pybind11.h>
#include <torchbridge/core/env_map.h>
#include <torchbridge/exchange/launch.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>

#include "launch_dict.h"

namespace {

namespace py = pybind11;
using torchbridge::EnvMap;

// What else could have started this process is left out, so that it is the one that was named.
EnvMap without(std::initializer_list<std::string_view> prefixes) {
  EnvMap kept;
  for (const auto& [name, value] : EnvMap::from(environ)) {
    bool dropped = false;
    for (const auto prefix : prefixes) dropped |= name.starts_with(prefix);
    if (!dropped) kept.set(name, value);
  }
  return kept;
}

py::dict slurm(double seconds, const std::string& options) {
  const auto environment = without({"OMPI_", "PMI_", "PMIX_", "PMI2_", "MPI_LOCAL", "FLUX_", "PALS_", "JSM_"});
  if (!environment.has("SLURM_PROCID") || !environment.has("SLURM_STEP_ID")) {
    throw std::runtime_error("slurm:// is for tasks that srun started: SLURM_PROCID and SLURM_STEP_ID are not set");
  }
  const auto settings = torchbridge::python::settings_of(seconds, options);
  const py::gil_scoped_release released;
  auto launch = torchbridge::resolve_launch(environment, settings);
  const py::gil_scoped_acquire acquired;
  return torchbridge::python::dict_of(std::move(launch));
}

py::dict pmix(double seconds, const std::string& options) {
  const auto environment = EnvMap::from(environ);
  if (!environment.has("PMIX_NAMESPACE")) {
    throw std::runtime_error("pmix:// is for ranks with a PMIx server: mpirun of OpenMPI, or srun --mpi=pmix (PMIX_NAMESPACE is not set)");
  }
  const auto launcher = torchbridge::find_launcher(environment, getpid());
  if (!launcher) throw std::runtime_error(launcher.error().message);
  if (*launcher == nullptr) throw std::runtime_error("pmix://: no launcher that tells rank and number of ranks");
  const auto facts = (*launcher)->read(environment);
  if (!facts) throw std::runtime_error(facts.error().message);
  const auto settings = torchbridge::python::settings_of(seconds, options);
  const auto meet = [&]() -> torchbridge::Result<torchbridge::Launch> {
    auto exchange = torchbridge::connect_pmix(facts->world_size);
    if (!exchange) return exchange.error();
    return torchbridge::resolve_launch(**exchange, {facts->rank, facts->world_size, facts->local_size}, environment, settings);
  };
  const py::gil_scoped_release released;
  auto launch = meet();
  const py::gil_scoped_acquire acquired;
  return torchbridge::python::dict_of(std::move(launch));
}

}  // namespace

PYBIND11_MODULE(_launch, module) {
  module.doc() = "How this process was started. Each call is collective, and throws RuntimeError where it cannot be told.";
  module.def("slurm", &slurm, py::arg("seconds"), py::arg("options"));
  module.def("pmix", &pmix, py::arg("seconds"), py::arg("options"));
}
