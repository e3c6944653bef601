#!/usr/bin/env python3
"""Memory of a rank and steps per second with the whole optimizer, with ZeRO stage 1, and with Python's
ZeroRedundancyOptimizer.

Private is what only this process has (Private_Clean and Private_Dirty of smaps_rollup), of the rank that has most,
between two steps. What it is more than that of plain SGD, which keeps no state, is the optimizer's.
"""

import json
import pathlib
import re
import tempfile
import time

import bench

MODEL = "mlp:2000,2000,2000"
PARAMETERS = 64 * 2000 + 2000 + 2 * (2000 * 2000 + 2000) + 2000 * 10 + 10
LOOK_AT_STEP, STEPS = 10, 50
DEADLINE = 240  # seconds a run may take
TRAINING = ["--data", "data/digits", "--model", MODEL, "--epochs", 1000, "--max-steps", STEPS, "--batch-size", 8,
            "--lr", 0.001, "--weight-decay", 0]
WORLD_SIZES = (1, 2, 4)


def programs(options):
    trainer = [f"{options.build}/bin/trainer", "--quiet", *TRAINING]
    reference = [options.python, "tests/reference/train_reference.py", *TRAINING]
    return {
        "trainer, sgd without state": [*trainer, "--optimizer", "sgd", "--momentum", 0],
        "trainer, adamw": [*trainer, "--optimizer", "adamw"],
        "trainer, adamw, --zero 1": [*trainer, "--optimizer", "adamw", "--zero", 1],
        "trainer, adamw, --zero 1, reduce-scatter": [*trainer, "--optimizer", "adamw", "--zero", 1, "--zero-gradients",
                                                     "reduce-scatter"],
        "Python, sgd without state": [*reference, "--optimizer", "sgd"],
        "Python, adamw": [*reference, "--optimizer", "adamw"],
        "Python, adamw, ZeroRedundancyOptimizer": [*reference, "--optimizer", "adamw", "--zero"],
    }


def private_mebibytes(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", text, re.MULTILINE))) / 1024


def run(command, world_size):
    """Private MiB of the rank that has most, once LOOK_AT_STEP is done, and steps per second after it."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        with bench.Ranks([*command, "--metrics", metrics], world_size) as ranks:
            deadline = time.monotonic() + DEADLINE
            while not metrics.exists() or metrics.read_bytes().count(b"\n") < LOOK_AT_STEP:
                if any(process.poll() is not None for process in ranks.processes) or time.monotonic() > deadline:
                    ranks.give_up(f"no step {LOOK_AT_STEP}")
                time.sleep(0.02)
            most = max(private_mebibytes(process.pid) for process in ranks.processes)
            ranks.wait(DEADLINE)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()][LOOK_AT_STEP:]
        seconds = sum(8 * world_size / line["samples_per_s"] for line in lines)
        return most, len(lines) / seconds


def main():
    options = bench.parser(__doc__).parse_args()
    bench.require(options.python, f"{options.build}/bin/trainer", "data/digits")
    commands = programs(options)
    rows = []
    for world_size in WORLD_SIZES:
        results = {name: run(command, world_size) for name, command in commands.items()}
        for name, (memory, rate) in results.items():
            language = name.split(",")[0]
            state = memory - results[f"{language}, sgd without state"][0]
            rows.append([world_size, name, f"{memory:.0f}", f"{state:.0f}", f"{rate:.1f}",
                         f"{rate / results[f'{language}, adamw'][1]:.2f}"])
    print(bench.table(["ranks", "program", "private, MiB", "more than sgd, MiB", "steps/s", "of adamw's"], rows))
    print(f"\nThe two moments of {PARAMETERS / 1e6:.1f} million parameters are {8 * PARAMETERS / 2**20:.0f} MiB.\n")
    for command in commands.values():
        print("    " + bench.shown(command, options))


if __name__ == "__main__":
    main()
