#!/usr/bin/env python3
"""Seconds from the start of the first process until a training step is done, of the trainer and of Python's
DistributedDataParallel.

The step is done when its line is in the metrics file. The programs take turns.
"""

import pathlib
import tempfile
import time

import bench

WORLD_SIZES = (1, 2, 8)
DEADLINE = 120  # seconds a run may take
TRAINING = ["--data", "data/digits", "--model", "mlp:128,64", "--epochs", 1000, "--max-steps", 1, "--batch-size", 8,
            "--optimizer", "sgd", "--lr", 0.01]


def programs(options):
    return {
        "C++ trainer": [f"{options.build}/bin/trainer", "--task", "digits", "--quiet"],
        "Python": [options.python, "tests/reference/train_reference.py"],
    }


def seconds_to_first_step(command, world_size):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        start = time.monotonic()
        with bench.Ranks([*command, *TRAINING, "--metrics", metrics], world_size) as ranks:
            while not metrics.exists() or metrics.stat().st_size == 0:
                if time.monotonic() > start + DEADLINE:
                    ranks.give_up(f"no step after {DEADLINE} s")
                time.sleep(0.002)
            seconds = time.monotonic() - start
            ranks.wait(DEADLINE)
    return seconds


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/trainer", "data/digits")
    rows = []
    for world_size in WORLD_SIZES:
        taken = {name: [] for name in commands}
        for repetition in range(options.repetitions + 1):
            for name, command in commands.items():
                seconds = seconds_to_first_step(command, world_size)
                if repetition > 0:  # the first round fills the file cache
                    taken[name].append(seconds)
        for name, seconds in taken.items():
            rows.append([world_size, name, bench.median_and_range(seconds, 2),
                         bench.ratio(seconds, taken["C++ trainer"])])
    print(bench.table(["ranks", "program", "first step, s", "ratio"], rows))
    print("\n    # as many processes as ranks, OMP_NUM_THREADS=1")
    for command in commands.values():
        print("    " + bench.shown([*command, *TRAINING], options))


if __name__ == "__main__":
    main()
