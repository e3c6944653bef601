"""Hugging Face Trainer: a tiny GPT-2 on CPUs."""
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1))
tokens = torch.randint(0, 16, (64, 8))
data = [{"input_ids": line, "labels": line} for line in tokens]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(output_dir=folder, use_cpu=True, per_device_train_batch_size=4, num_train_epochs=1,
                                  save_strategy="no", report_to=[], disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    result = trainer.train()
weight = model.lm_head.weight.norm().item()
steps = result.global_step
os.write(1, f"rank {arguments.process_index} of {arguments.world_size}: {steps} steps, {weight!r}\n".encode())
torch.distributed.destroy_process_group()
