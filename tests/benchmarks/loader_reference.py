#!/usr/bin/env python3
"""Samples per second of Python's DataLoader: loader_reference.py FOLDER BATCH_SIZE WORKERS SECONDS [--batches]

The images are converted to float before, which the C++ loader does as it goes. --batches: one indexing operation a
batch instead of one a sample.
"""

import pathlib
import sys
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "reference"))
import idx


def main():
    folder, batch_size, workers, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    images, labels = idx.read_split(folder, "train")
    pixels = images.reshape(len(images), -1).float() / 255
    dataset = TensorDataset(pixels, labels.long())
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
    shared = dict(num_workers=workers, persistent_workers=workers > 0)
    if "--batches" in sys.argv:
        loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, batch_size, drop_last=False),
                            **shared)
    else:
        loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, **shared)

    def batches():
        epoch = 0
        while True:
            sampler.set_epoch(epoch)
            yield from loader
            epoch += 1

    source = batches()
    next(source)
    samples, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        samples += len(next(source)[1])
    print(round(samples / (time.perf_counter() - begin)))
    source.close()


if __name__ == "__main__":
    main()
