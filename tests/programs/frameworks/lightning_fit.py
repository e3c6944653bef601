"""PyTorch Lightning: two devices on each of two nodes, DDP. Lightning finds its ranks by itself."""
import os

import lightning
import torch

torch.manual_seed(0)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", max_epochs=1, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, loader)
weight = model.layer.weight.norm().item()
os.write(1, f"rank {trainer.global_rank} of {trainer.world_size}: {trainer.global_step} steps, {weight!r}\n".encode())
