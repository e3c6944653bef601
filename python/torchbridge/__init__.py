"""Gives torch.distributed the backend "mpi" and the init methods slurm://, pmix:// and mpi://. The import registers both."""
from . import backend, rendezvous

backend.register()
rendezvous.register()
