#!/usr/bin/env python3
"""Steps per second of the C++ trainer and of Python's DistributedDataParallel, with 1 and 2 ranks on this machine.

Model, data, batches and initial weights are the same, so the losses are too. The programs take turns. Steps per
second come from the metrics that both write, after the warm-up.
"""

import itertools
import json
import math
import pathlib
import tempfile

import bench

DATA = "data/digits"
SAMPLES = 1437
WORLD_SIZES = (1, 2)
BATCH_SIZE = 32
WARM_UP_STEPS = 100
# name, model, steps
MODELS = [("small", "mlp:64", 3000), ("large", "mlp:2048,2048", 300), ("convolutional", "cnn:16,32", 1000)]
DEADLINE = 300  # seconds a run may take


def programs(options):
    """Name to command, with the options that only that program has."""
    reference = [options.python, "tests/reference/train_reference.py"]
    return {
        "C++ trainer": [f"{options.build}/bin/trainer", "--task", "digits", "--lr-schedule", "constant", "--quiet"],
        "Python, as usual": reference,
        "Python, tuned": [*reference, "--loader", "batches", "--gradient-as-bucket-view"],
    }


def training(model, steps):
    return ["--data", DATA, "--model", model, "--epochs", 1000, "--max-steps", steps, "--batch-size", BATCH_SIZE,
            "--optimizer", "sgd", "--lr", 0.01, "--momentum", 0.9, "--weight-decay", 0, "--seed", 0]


def samples_of(step, world_size):
    """Samples of all ranks in a step, 1 being the first; the last step of an epoch has what is left."""
    a_rank = math.ceil(SAMPLES / world_size)
    step_of_epoch = (step - 1) % math.ceil(a_rank / BATCH_SIZE)
    return world_size * min(BATCH_SIZE, a_rank - step_of_epoch * BATCH_SIZE)


def steps_per_second(lines, world_size):
    """Of the steps after the warm-up. A line tells the rate since the line before it, so the times add up."""
    seconds = [samples_of(line["step"], world_size) / line["samples_per_s"] for line in lines if line["step"] > WARM_UP_STEPS]
    return len(seconds) / sum(seconds)


def run_once(command, model, steps, world_size):
    """Steps per second, and the last loss."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        with bench.Ranks([*command, *training(model, steps), "--metrics", metrics], world_size) as ranks:
            ranks.wait(DEADLINE)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return steps_per_second(lines, world_size), lines[-1]["loss"]


def measure(commands, model, steps, world_size, repetitions):
    """Name to list of results."""
    results = {name: [] for name in commands}
    for _ in range(repetitions):
        for name, command in commands.items():
            results[name].append(run_once(command, model, steps, world_size))
    return results


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/trainer", DATA)
    rows = []
    for world_size, (size, model, steps) in itertools.product(WORLD_SIZES, MODELS):
        results = measure(commands, model, steps, world_size, options.repetitions)
        ours = [rate for rate, _ in next(iter(results.values()))]
        for name, result in results.items():
            rates = [rate for rate, _ in result]
            losses = sorted({loss for _, loss in result})
            rows.append([world_size, f"{size}, `{model}`, {steps} steps", name, bench.median_and_range(rates, 0),
                         bench.ratio(ours, rates), ", ".join(f"{loss:.9g}" for loss in losses)])
    print(bench.table(["ranks", "model", "program", "steps/s", "the trainer is faster by", "last loss"], rows))
    print()
    print("    # as many processes as ranks, RANK=0 and 1, OMP_NUM_THREADS=1, each way with --model and --max-steps of the table")
    for command in commands.values():
        print("    " + bench.shown([*command, *training("MODEL", "STEPS")], options))


if __name__ == "__main__":
    main()
