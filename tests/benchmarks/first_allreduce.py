"""Forms a gloo group, adds up one number over all ranks and says when that was done, as first_allreduce.cpp does."""

import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    done = time.time()
    assert ones.item() == dist.get_world_size()
    print(f"first all-reduce at {done:.6f} on rank {dist.get_rank()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
