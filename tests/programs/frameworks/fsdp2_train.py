"""PyTorch's FSDP2 over gloo, with a distributed checkpoint (DCP) in a folder that all ranks see: the last argument."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
dist.init_process_group("gloo")
rank, ranks, folder = dist.get_rank(), dist.get_world_size(), sys.argv[-1]


def sharded():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def norm(model):
    return sum(parameter.full_tensor().square().sum().item() for parameter in model.parameters()) ** 0.5


model, optimizer = sharded()
inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
steps = 4
for step in range(steps):
    mine = slice((step * ranks + rank) * 4, (step * ranks + rank + 1) * 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
    optimizer.step()
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
loaded, its_optimizer = sharded()
weights, state = get_state_dict(loaded, its_optimizer)
dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
set_state_dict(loaded, its_optimizer, model_state_dict=weights, optim_state_dict=state)
before, after = norm(model), norm(loaded)
assert before == after, (before, after)
os.write(1, f"rank {rank} of {ranks}: {steps} steps, {after!r}\n".encode())
dist.destroy_process_group()
