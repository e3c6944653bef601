"""Does what overlap.cpp does, with Python's DistributedDataParallel. Usage: overlap_reference.py WIDTH BATCH
BUCKET_CAP_MB STEPS"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    width, batch, steps = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())])
    ddp = DistributedDataParallel(model, bucket_cap_mb=float(sys.argv[3]), gradient_as_bucket_view=True)
    ddp._set_ddp_runtime_logging_sample_rate(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    for _ in range(steps):
        ddp(torch.randn(batch, width)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        data = ddp._get_ddp_logging_data()
        for what in ("avg_backward_compute_time", "avg_backward_comm_time", "avg_backward_compute_comm_overlap_time"):
            print(f"{data.get(what, 0) / 1e6:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
