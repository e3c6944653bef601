"""JAX on CPUs: jax.distributed.initialize() finds its launcher by itself."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()
rank, ranks = jax.process_index(), jax.process_count()
total = multihost_utils.process_allgather(jnp.float32(rank)).sum().item()
os.write(1, f"rank {rank} of {ranks}: sum {total!r}\n".encode())
