"""Trains a small model over gloo as an ordinary script of torchrun does; continues from the last checkpoint.

    agent_worker.py FOLDER STEPS        two ranks: with more, DDP's sums depend on its first step after a start

Rank 0 appends a line to FOLDER/steps at each step, saves FOLDER/checkpoint.pt every fifth one, and writes FOLDER/result
at the end: all losses and the parameters, bit for bit.
"""

import gc
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    checkpoint, losses = folder / "checkpoint.pt", []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        losses = saved["losses"]
    progress = (folder / "steps").open("a", buffering=1)
    dist.barrier()  # the file is replaced only after all have read it
    loss = None
    for step in range(len(losses), steps):
        inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
        optimizer.zero_grad()
        loss = ddp(inputs).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item())
        if rank == 0:
            print(step, file=progress)
        if rank == 0 and (step + 1) % 5 == 0:
            torch.save({"model": model.state_dict(), "losses": losses}, folder / "new.pt")
            os.replace(folder / "new.pt", checkpoint)
    if rank == 0:
        values = [*losses, *model.weight.flatten().tolist()]
        (folder / "result").write_text("\n".join(value.hex() for value in values))
    # Collected before its group ends: Python else aborts at its exit in some of the runs.
    del ddp, model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
