"""Backend "mpi" for a torch that was built without MPI."""
import importlib.util
import sys

import torch.distributed
from torch.distributed import distributed_c10d


class ProcessGroupMPI:
    """Stands where torch has its own class of this name if it is built with MPI: distributed_c10d asks it alone."""

    @staticmethod
    def create(ranks, timeout=None):
        from . import _mpi  # loads libmpi, so not before it is wanted

        # distributed_c10d has no word about the group's timeout for its own MPI, which knows none: its caller's
        # variable of that name.
        timeout = timeout or sys._getframe(1).f_locals.get("timeout")
        return _mpi.create(ranks, timeout and timeout.total_seconds())


def register():
    """Not Backend.register_backend: distributed_c10d looks for its own MPI before it looks for registered backends of
    that name."""
    if torch.distributed.is_mpi_available() or not importlib.util.find_spec(f"{__package__}._mpi"):
        return
    distributed_c10d.ProcessGroupMPI = ProcessGroupMPI
    distributed_c10d._MPI_AVAILABLE = True
    torch.distributed.ProcessGroupMPI = ProcessGroupMPI
