"""Backend "mpi" for a torch that was built without MPI."""
import importlib.util

import torch.distributed
from torch.distributed import distributed_c10d


class ProcessGroupMPI:
    """Stands where torch has its own class of this name if it is built with MPI: distributed_c10d asks it alone."""

    @staticmethod
    def create(ranks):
        from . import _mpi  # loads libmpi, so not before it is wanted

        return _mpi.create(ranks)


def register():
    """Not Backend.register_backend: distributed_c10d looks for its own MPI before it looks for registered backends of that name."""
    if torch.distributed.is_mpi_available() or not importlib.util.find_spec(f"{__package__}._mpi"):
        return
    distributed_c10d.ProcessGroupMPI = ProcessGroupMPI
    distributed_c10d._MPI_AVAILABLE = True
    torch.distributed.ProcessGroupMPI = ProcessGroupMPI
