"""Backend "mpi" for a torch that was built without MPI."""
import importlib.util
import sys

import torch.distributed
from torch.distributed import distributed_c10d


class ProcessGroupMPI:
    """Replaces torch's class of this name, which only builds with MPI have: distributed_c10d uses no other class."""

    @staticmethod
    def create(ranks, timeout=None):
        from . import _mpi  # loads libmpi, so only when it is needed

        # distributed_c10d passes no timeout to its own MPI, which has none: the caller's variable `timeout` is the
        # group's.
        timeout = timeout or sys._getframe(1).f_locals.get("timeout")
        return _mpi.create(ranks, timeout and timeout.total_seconds())


def register():
    """Not by Backend.register_backend: distributed_c10d looks for its own MPI before the registered backends."""
    if torch.distributed.is_mpi_available() or not importlib.util.find_spec(f"{__package__}._mpi"):
        return
    distributed_c10d.ProcessGroupMPI = ProcessGroupMPI
    distributed_c10d._MPI_AVAILABLE = True
    torch.distributed.ProcessGroupMPI = ProcessGroupMPI
