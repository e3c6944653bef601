"""A rank of preload_time.py: forms a gloo group, adds up one number, and makes a step of DDP.

    preload_worker.py FOLDER [kill]

Appends the times of these to FOLDER/times: all-reduce, step, and of the rank's memory after a few more steps, in MB.
With `kill` rank 1 of the first attempt then ends by SIGKILL, and the time of that is in FOLDER/killed.
"""

import gc
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist


def share_of_memory():
    """Proportional set size in MB."""
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main():
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ones = torch.ones(1)
    dist.all_reduce(ones)
    reduced = time.time()
    assert ones.item() == dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
        stepped = time.time() if step == 0 else stepped
    gc.collect()
    dist.barrier()
    memory = share_of_memory()
    dist.barrier()
    with (folder / "times").open("a") as file:
        file.write(f"{reduced:.6f} {stepped:.6f} {memory:.1f}\n")
    dist.barrier()
    if sys.argv[2:] == ["kill"] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank == 1:
            (folder / "killed").write_text(f"{time.time():.6f}")
            os.kill(os.getpid(), 9)
        time.sleep(1000)
    # Collected before its group ends: Python else aborts at its exit in some of the runs.
    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
