#!/usr/bin/env python3
"""What checkpoint_speed.cpp does, by torch.save and by torch.distributed.checkpoint. Prints one JSON object.

    checkpoint_reference.py FOLDER MEGABYTES torch_save|dcp_save|dcp_async_save SAVES
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


def state_of(megabytes):
    count = max(1, megabytes * 1_000_000 // 3 // TENSOR_BYTES)
    elements = megabytes * 1_000_000 // 3 // count // 4
    return {f"layers.{i}.{kind}": torch.randn(elements) for i in range(count) for kind in ("weight", "exp_avg", "exp_avg_sq")}


def sync_all(folder):
    """What torch.save and DCP leave to the system."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def save(way, state, folder, saves):
    stalls, totals = [], []
    for _ in range(saves):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begin = time.monotonic()
        if way == "torch_save":
            torch.save(state, folder / "state.pt")
        elif way == "dcp_save":
            dcp.save(state, checkpoint_id=folder)
        else:
            future = dcp.async_save(state, checkpoint_id=folder)
        stalls.append(time.monotonic() - begin)
        if way == "dcp_async_save":
            future.result()
        sync_all(folder)
        totals.append(time.monotonic() - begin)
    return {"stalls": stalls, "totals": totals}


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
    state = state_of(megabytes)
    print(json.dumps(load(way, state, folder) if way.endswith("load") else save(way, state, folder, int(sys.argv[4]))))


if __name__ == "__main__":
    main()
