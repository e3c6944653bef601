#!/usr/bin/env python3
"""Samples per second of the C++ loader and of Python's DataLoader, for 60,000 images of 28x28, each with its best
number of workers."""

import os
import pathlib
import random
import struct
import subprocess
import tempfile

import bench

IMAGES = 60000
SIDE = 28
BATCH_SIZE = 64
SECONDS = 2  # of each measurement
WORKERS = (0, 1, 2, 4)
DEADLINE = 120


def write_images(folder):
    """Random pixels: nothing here depends on them."""
    source = random.Random(0)
    header = struct.pack(">IIII", 0x803, IMAGES, SIDE, SIDE)
    (folder / "train-images-idx3-ubyte").write_bytes(header + source.randbytes(IMAGES * SIDE * SIDE))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, IMAGES) +
                                                     bytes(i % 10 for i in range(IMAGES)))


def programs(options):
    reference = [options.python, "tests/benchmarks/loader_reference.py"]
    return {"C++ loader": ([f"{options.build}/bin/loader_speed"], []), "Python, as usual": (reference, []),
            "Python, by batches": (reference, ["--batches"])}


def rate(command):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=bench.ROOT, env=environment, capture_output=True, text=True, check=True,
                          timeout=DEADLINE)
    return float(done.stdout)


def main():
    options = bench.parser(__doc__).parse_args()
    bench.require(options.python, f"{options.build}/bin/loader_speed")
    best = {name: [] for name in programs(options)}
    chosen = {name: {} for name in best}
    with tempfile.TemporaryDirectory() as folder:
        write_images(pathlib.Path(folder))
        for _ in range(options.repetitions):
            for name, (command, more) in programs(options).items():
                rates = {count: rate([*command, folder, str(BATCH_SIZE), str(count), str(SECONDS), *more])
                         for count in WORKERS}
                best[name].append(max(rates.values()))
                for count, value in rates.items():
                    chosen[name].setdefault(count, []).append(value)
    ours = best["C++ loader"]
    rows = [[name, bench.median_and_range(values, 0), bench.ratio(ours, values),
             "; ".join(f"{count}: {sorted(of)[len(of) // 2]:.0f}" for count, of in chosen[name].items())]
            for name, values in best.items()]
    print(bench.table(["loader", "samples/s with the best number of workers", "the C++ loader is faster by",
                       "median with 0, 1, 2, 4 workers"], rows))
    print()
    for command, more in programs(options).values():
        print("    " + bench.shown([*command, "FOLDER", BATCH_SIZE, "WORKERS", SECONDS, *more], options))


if __name__ == "__main__":
    main()
