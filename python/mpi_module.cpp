// torchbridge._mpi: the MPI backend for Python, and the address of a store exchanged by MPI. Loads
// libmpi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "backends/mpi/mpi_backend.h"
#include "backends/mpi/mpi_thread.h"
#include "bridge/launch/launch.h"
#include "bridge/mpi/mpi_launch.h"
#include "python/launch_settings.h"

// As torch's own bindings hold it; in Python the class is torch's Backend.
PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true)

namespace {

namespace py = pybind11;
using torchbridge::mpi::MpiBackend;
using torchbridge::mpi::MpiOptions;
using torchbridge::mpi::MpiThread;

c10::intrusive_ptr<c10d::Backend> create(const std::vector<std::uint64_t>& ranks,
                                         std::optional<double> seconds) {
  auto options = c10::make_intrusive<MpiOptions>();
  if (seconds)
    options->timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
  options->global_ranks_in_group = ranks;
  const py::gil_scoped_release released;
  return MpiBackend::create(std::move(options));
}

// A Launch as Python's init methods take it. listen_fd belongs to the caller; -1 where the store
// binds the port itself.
py::dict dict_of(torchbridge::Result<torchbridge::Launch> launch) {
  if (!launch) throw std::runtime_error(launch.error().message);
  py::dict found;
  found["rank"] = launch->env.layout.rank;
  found["world_size"] = launch->env.layout.world_size;
  found["local_rank"] = launch->env.layout.local_rank;
  found["host"] = launch->env.master.host;
  found["port"] = launch->env.master.port;
  found["agent_store"] = launch->env.use_agent_store;
  found["listen_fd"] = launch->store_socket.open() ? launch->store_socket.release() : -1;
  return found;
}

py::dict launch(double seconds, const std::string& options) {
  const auto settings = torchbridge::python::settings_of(seconds, options);
  auto found = std::make_shared<std::optional<torchbridge::Result<torchbridge::Launch>>>();
  {
    const py::gil_scoped_release released;
    const auto world = MpiThread::instance().world(settings.timeout);
    MpiThread::instance().run(
        "the exchange of the store's address by MPI", settings.timeout, [found, world, settings] {
          found->emplace(torchbridge::resolve_launch(world->handle, settings));
        });
  }
  return dict_of(std::move(**found));
}

}  // namespace

PYBIND11_MODULE(_mpi, module) {
  module.doc() = "torch.distributed's backend mpi";
  py::module_::import("torch.distributed");
  module.def("create", &create, py::arg("ranks"), py::arg("seconds"),
             "The group of these ranks of MPI_COMM_WORLD, or of all: a Backend, or None outside. "
             "Without a timeout "
             "torch's own.");
  module.def("launch", &launch, py::arg("seconds"), py::arg("options"));
  module.def("thread_level", [] { return MpiThread::instance().thread_level(); });
}
