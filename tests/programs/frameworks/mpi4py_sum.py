"""mpi4py alone: what torchrun's variables say is not asked."""
import os

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(float(world.rank))
os.write(1, f"rank {world.rank} of {world.size}: sum {total!r}\n".encode())
