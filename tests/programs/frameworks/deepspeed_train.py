"""DeepSpeed on CPUs (DS_ACCELERATOR=cpu): ZeRO stage 1 over gloo."""
import os

import deepspeed
import torch

torch.manual_seed(0)
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
engine, _, loader, _ = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), training_data=data, config=config)
for inputs, targets in loader:
    engine.backward(torch.nn.functional.mse_loss(engine(inputs), targets))
    engine.step()
weight = engine.module.weight.norm().item()
rank, ranks, steps = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size(), engine.global_steps
os.write(1, f"rank {rank} of {ranks}: {steps} steps, {weight!r}\n".encode())
deepspeed.comm.destroy_process_group()
