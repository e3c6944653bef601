"""Backend "mpi" for a torch that was built without MPI."""
import importlib.util
import sys

import torch.distributed
from torch.distributed import distributed_c10d


def load_mpi():
    """torchbridge._mpi. It loads libmpi, so only when it is needed, and uses torch's own libraries."""
    try:
        from . import built_with
    except ImportError:
        raise ImportError("this torchbridge has no backend mpi, as it was built without MPI and torch: "
                          "docs/use/mpi.md says how to build one") from None
    if torch.__version__.split(".")[:2] != built_with.TORCH.split("."):
        raise ImportError(f"torchbridge was built with torch {built_with.TORCH}, and finds torch {torch.__version__}: "
                          "build it again with the latter")
    from . import _mpi
    return _mpi


class ProcessGroupMPI:
    """Replaces torch's class of this name, which only builds with MPI have: distributed_c10d uses no other class."""

    @staticmethod
    def create(ranks, timeout=None):
        # distributed_c10d passes no timeout to its own MPI, which has none: the group's is in the caller's variable
        # `timeout`, or from torch 2.14 on in its `opts`.
        callers = sys._getframe(1).f_locals
        timeout = timeout or callers.get("timeout") or getattr(callers.get("opts"), "timeout", None)
        return load_mpi().create(ranks, timeout and timeout.total_seconds())


def register():
    """Not by Backend.register_backend: distributed_c10d looks for its own MPI before the registered backends."""
    if torch.distributed.is_mpi_available() or not importlib.util.find_spec(f"{__package__}._mpi"):
        return
    distributed_c10d.ProcessGroupMPI = ProcessGroupMPI
    distributed_c10d._MPI_AVAILABLE = True
    torch.distributed.ProcessGroupMPI = ProcessGroupMPI
