"""PyTorch Lightning in a job of two ranks: the first start waits for a signal in step 5, the second goes on from there.
Usage: lightning_requeue.py FOLDER [plugin]    with plugin the program itself gives Lightning Slurm's environment
"""
import os
import signal
import sys

import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment

folder, is_second = sys.argv[1], "SLURM_RESTART_COUNT" in os.environ


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        if self.global_step == 5 and not is_second:
            open(os.path.join(folder, f"waits-{self.global_rank}"), "w").close()
            while True:  # both ranks save in the same step
                signal.pause()
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_start(self):
        if is_second:
            os.write(1, f"rank {self.global_rank} goes on at step {self.global_step}\n".encode())
            self.trainer.should_stop = True


data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=-1, logger=False, min_steps=0,
                            plugins=[SLURMEnvironment()] if "plugin" in sys.argv else None, default_root_dir=folder,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
