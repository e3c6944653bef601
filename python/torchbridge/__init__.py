"""Backend "mpi" and init methods slurm://, pmix:// and mpi:// of torch.distributed; env:// with the socket that the
launcher has bound for rank 0. The import registers them."""
from . import backend, env_store, rendezvous

backend.register()
env_store.register()
rendezvous.register()
