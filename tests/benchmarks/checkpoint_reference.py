#!/usr/bin/env python3
"""What checkpoint_speed.cpp does, by torch.save and by torch.distributed.checkpoint. Prints one JSON object.

    checkpoint_reference.py FOLDER MEGABYTES torch_save|dcp_save|dcp_async_save SAVES [ROWS]
    checkpoint_reference.py FOLDER MEGABYTES torch_load|dcp_load
"""

import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

TENSOR_BYTES = 16 << 20
UNDISTURBED = 4  # steps before each save


class Training:
    def __init__(self, megabytes):
        count = max(1, megabytes * 1_000_000 // 3 // TENSOR_BYTES)
        side = int((megabytes * 1_000_000 / 3 / count / 4) ** 0.5)
        self.weights = [(torch.randn(side, side) * (2 / side) ** 0.5).requires_grad_() for _ in range(count)]
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-5, fused=True)
        for weight in self.weights:
            weight.grad = torch.zeros_like(weight)
        self.optimizer.step()

    def state(self):
        state = {}
        for i, weight in enumerate(self.weights):
            of_weight = self.optimizer.state[weight]
            state[f"layers.{i}.weight"] = weight.detach()
            state.update({f"layers.{i}.{kind}": of_weight[kind] for kind in ("exp_avg", "exp_avg_sq")})
        return state

    def step(self, inputs, steps):
        begin, cpu = time.monotonic(), time.thread_time()
        self.optimizer.zero_grad()
        values = inputs
        for weight in self.weights:
            values = values.matmul(weight).relu()
        values.square().mean().backward()
        self.optimizer.step()
        steps["cpu"].append(time.thread_time() - cpu)
        steps["seconds"].append(time.monotonic() - begin)
        steps["waits"].append(0)


def sync_all(folder):
    """What torch.save and DCP leave to the system."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def start(way, state, folder):
    """Seconds that the call took, and what to wait for."""
    future = None
    begin = time.monotonic()
    if way == "torch_save":
        torch.save(state, folder / "state.pt")
    elif way == "dcp_save":
        dcp.save(state, checkpoint_id=folder)
    else:
        future = dcp.async_save(state, checkpoint_id=folder)
    return time.monotonic() - begin, future


def save(way, state, folder, saves):
    stalls, totals = [], []
    for _ in range(saves):
        empty(folder)
        begin = time.monotonic()
        stall, future = start(way, state, folder)
        stalls.append(stall)
        if future:
            future.result()
        sync_all(folder)
        totals.append(time.monotonic() - begin)
    return {"stalls": stalls, "totals": totals}


def save_in_training(way, training, folder, saves, rows):
    """Of each save: the steps before it, the call, and the steps from then until the files are written, though not
    synced."""
    inputs = torch.randn(rows, training.weights[0].shape[0])
    def no_steps():
        return {"seconds": [], "cpu": [], "waits": []}

    training.step(inputs, no_steps())
    records = []
    for _ in range(saves):
        before, after = no_steps(), no_steps()
        for _ in range(UNDISTURBED):
            training.step(inputs, before)
        empty(folder)
        call, future = start(way, training.state(), folder)
        training.step(inputs, after)
        while future and not future.done():
            training.step(inputs, after)
        records.append({"before": before, "call": call, "after": after})
    return records


def load(way, state, folder):
    begin = time.monotonic()
    if way == "torch_load":
        state.update(torch.load(folder / "state.pt"))
    else:
        dcp.load(state, checkpoint_id=folder)
    return {"load": time.monotonic() - begin}


def main():
    folder, megabytes, way = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if way.startswith("dcp"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    training = Training(megabytes)
    if len(sys.argv) > 5:
        result = save_in_training(way, training, folder, int(sys.argv[4]), int(sys.argv[5]))
    elif way.endswith("load"):
        result = load(way, training.state(), folder)
    else:
        result = save(way, training.state(), folder, int(sys.argv[4]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
