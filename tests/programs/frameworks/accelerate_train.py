"""Hugging Face Accelerate on CPUs."""
import os

import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = 0
for inputs, targets in loader:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
    optimizer.step()
    steps += 1
weight = accelerator.unwrap_model(model).weight.norm().item()
rank, ranks = accelerator.process_index, accelerator.num_processes
os.write(1, f"rank {rank} of {ranks}: {steps} steps, {weight!r}\n".encode())
accelerator.end_training()
