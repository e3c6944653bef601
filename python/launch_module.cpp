// torchbridge._launch: how this process was started, for Python. No MPI.
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "bridge/base/env_map.h"
#include "bridge/launch/launch.h"
#include "python/launch_dict.h"

namespace {

namespace py = pybind11;
using torchbridge::EnvMap;

// "slurm" or "pmix", as the init method of that name.
py::dict launch(const std::string& scheme, double seconds, const std::string& options) {
  const auto method = torchbridge::parse_init_method(scheme + "://");
  if (!method) throw std::runtime_error(method.error().message);
  const auto settings = torchbridge::python::settings_of(seconds, options);
  const py::gil_scoped_release released;
  auto found = torchbridge::resolve_launch(*method, {}, EnvMap::from(environ), settings);
  const py::gil_scoped_acquire acquired;
  return torchbridge::python::dict_of(std::move(found));
}

}  // namespace

PYBIND11_MODULE(_launch, module) {
  module.doc() = "How this process was started. Each call is collective, and throws RuntimeError on an error.";
  module.def("launch", &launch, py::arg("scheme"), py::arg("seconds"), py::arg("options"));
}
