#!/usr/bin/env python3
"""The trainings of tests/programs/python_resume.cpp in Python.

    python_resume.py write FOLDER    trains and saves words.safetensors, init.safetensors, and OPTIMIZER.pt after three
                                     of six steps
    python_resume.py read FOLDER     resumes from the checkpoints that the C++ program left in FOLDER, and from
                                     torchbridge.convert's conversions of them

In FOLDER/MODE.RANK a line a run: OPTIMIZER RUN LOSS ..., losses of this rank as hexadecimal floats.
"""
import contextlib
import json
import os
import sys

from forked_ranks import run_ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, load_model, save_file, save_model
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

WORDS, WIDTH, SAVED, LAST = 24, 8, 3, 6
rank, ranks = None, 2  # run() sets its own


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(WORDS, WIDTH)
        self.fc = torch.nn.Linear(WIDTH, WIDTH)
        self.bn = torch.nn.BatchNorm1d(WIDTH)
        self.lm_head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, words):
        return self.lm_head(torch.relu(self.bn(self.fc(self.wte(words)))))


def make(kind):
    torch.manual_seed(3)
    model = Model()
    parameters = list(model.parameters())
    if kind == "sgd":
        return model, torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.1, fused=True)
    if kind == "adam":
        return model, torch.optim.Adam(model.named_parameters(), lr=0.01, weight_decay=0.1, amsgrad=True, fused=True)
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}]
    return model, torch.optim.AdamW(groups, lr=0.01, fused=True)


def train(kind, run, model, optimizer, words, first, save=None):
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    losses = []
    for step in range(first, LAST):
        x = words[step][rank]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x), (x * 3 + 1) % WORDS)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if save and step + 1 == SAVED and rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": SAVED, "note": "x"},
                       save)
    print(kind, run, *losses)


def write(folder):
    words = torch.randint(0, WORDS, (LAST, ranks, 16), generator=torch.Generator().manual_seed(1))
    if rank == 0:
        save_file({"words": words}, folder + "/words.safetensors")
        save_model(make("sgd")[0], folder + "/init.safetensors")
    for kind in ("sgd", "adam", "adamw"):
        train(kind, "whole", *make(kind), words, 0, f"{folder}/{kind}.pt")


def resume(model, optimizer, folder):  # docs/use/checkpoint.md shows these lines
    load_model(model, folder + "/model.safetensors")
    groups = json.load(open(folder + "/manifest.json"))["optimizer"]["groups"]
    names = [name for group in groups for name in group["parameters"]]
    saved = optimizer.state_dict()
    saved["state"] = {number: {} for number in range(len(names))}
    for key, tensor in load_file(folder + "/optimizer-00000-of-00001.safetensors").items():
        name, kind = key.rsplit(".", 1)
        saved["state"][names.index(name)][kind] = tensor
    optimizer.load_state_dict(saved)


def resume_converted(model, optimizer, file):
    saved = torch.load(file, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert saved["step"] == SAVED


def check_dcp(folder):
    """What torch.distributed.checkpoint reads equals what is in the files, also where the optimizer's state is in
    pieces."""
    expected = load_file(folder + "/model.safetensors")
    for shard in range(ranks):
        file = f"{folder}/optimizer-{shard:05}-of-{ranks:05}.safetensors"
        if not os.path.exists(file):
            file = folder + "/optimizer-00000-of-00001.safetensors" if shard == 0 else None
        for name, piece in (load_file(file) if file else {}).items():
            spread = shard > 0 and name in expected and piece.dim() > 0
            expected[name] = torch.cat([expected[name], piece]) if spread else piece
    found = {name: torch.full_like(tensor, 7) for name, tensor in expected.items()}
    dcp.load(found, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    return len(expected)


def check_converted_from_torch(folder, kind):
    """Each tensor of Python's file is in the checkpoint that was made of it, and no other."""
    saved = torch.load(f"{folder}/{kind}.pt", weights_only=True)
    checkpoint = f"{folder}/from-python-{kind}/step-{SAVED:08}"
    for weights in (f"{folder}/{kind}.safetensors", checkpoint + "/model.safetensors"):
        model = make(kind)[0]
        load_model(model, weights)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, saved["model"][name]), name
    state = load_file(checkpoint + "/optimizer-00000-of-00001.safetensors")
    model, optimizer = make(kind)
    names = {parameter: name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, name in enumerate(names[parameter] for parameter in parameters):
        for key, tensor in saved["optimizer"]["state"][number].items():
            assert torch.equal(state.pop(f"{name}.{key}"), tensor), (name, key)
    assert not state


def read(folder):
    words = load_file(folder + "/words.safetensors")["words"]
    for kind in ("sgd", "adam", "adamw"):
        model, optimizer = make(kind)
        resume(model, optimizer, f"{folder}/{kind}-whole/step-{SAVED:08}")
        train(kind, "from_ours", model, optimizer, words, SAVED)
        check_converted_from_torch(folder, kind)
        for run in ("whole", "zero"):
            model, optimizer = make(kind)
            resume_converted(model, optimizer, f"{folder}/{kind}-{run}.pt")
            train(kind, f"converted_{run}", model, optimizer, words, SAVED)
            print(kind, f"dcp_{run}", check_dcp(f"{folder}/{kind}-{run}/step-{SAVED:08}"))


def run(mode, folder):
    global rank
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{mode}", rank=rank, world_size=ranks)
    with open(f"{folder}/{mode}.{rank}", "w", encoding="utf-8") as out, contextlib.redirect_stdout(out):
        {"write": write, "read": read}[mode](folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    codes = run_ranks(ranks, run, *sys.argv[1:])
    if codes:
        sys.exit(f"exit codes {codes}")
