"""Gives torch.distributed the backend "mpi" and the init methods slurm://, pmix:// and mpi://. Importing is all there
is to do."""
from . import backend, rendezvous

backend.register()
rendezvous.register()
