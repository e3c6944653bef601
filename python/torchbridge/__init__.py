"""Backend "mpi" and init methods slurm://, pmix:// and mpi:// of torch.distributed. The import registers them."""
from . import backend, rendezvous

backend.register()
rendezvous.register()
