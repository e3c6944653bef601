"""PyTorch Ignite: idist.Parallel finds the ranks."""
import os

import ignite.distributed as idist
import torch
from ignite.engine import Engine


def training(local_rank):
    torch.manual_seed(0)
    model = idist.auto_model(torch.nn.Linear(4, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = idist.auto_dataloader(data, batch_size=16)  # of all ranks

    def step(engine, batch):
        inputs, targets = batch
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    trainer.run(loader, max_epochs=1)
    weight = next(model.parameters()).norm().item()
    rank, ranks, steps = idist.get_rank(), idist.get_world_size(), trainer.state.iteration
    os.write(1, f"rank {rank} of {ranks}: {steps} steps, {weight!r}\n".encode())


with idist.Parallel(backend="gloo") as parallel:
    parallel.run(training)
