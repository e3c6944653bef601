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
import typing

import bench

WORLD_SIZES = (1, 2)


class Workload(typing.NamedTuple):
    name: str
    model: str
    steps: int
    warm_up: int  # steps that are not counted
    batch_size: int = 32
    task: str = "digits"
    data: str = "data/digits"
    samples: int = 1437  # of an epoch
    more: tuple = ("--optimizer", "sgd", "--lr", 0.01, "--momentum", 0.9, "--weight-decay", 0)


TEXT = dict(task="text", data="data/text/pentateuch.txt",
            more=("--optimizer", "adamw", "--lr", 0.001, "--weight-decay", 0.1, "--no-decay-1d", "--clip-norm", 1,
                  "--warmup-steps", 0))
WORKLOADS = [
    Workload("small", "mlp:64", 3000, 100),
    Workload("large", "mlp:2048,2048", 300, 100),
    Workload("convolutional", "cnn:16,32", 1000, 100),
    Workload("GPT", "gpt:tiny", 150, 20, 8, samples=11462, **TEXT),
    Workload("GPT", "gpt:small", 10, 2, 2, samples=2865, **TEXT),
]
DEADLINE = 300  # seconds a run may take


def programs(options):
    """Name to command, with the options that only that program has."""
    reference = [options.python, "tests/reference/train_reference.py"]
    return {
        "C++ trainer": [f"{options.build}/bin/trainer", "--quiet"],
        "Python, as usual": reference,
        "Python, tuned": [*reference, "--loader", "batches", "--gradient-as-bucket-view"],
    }


def training(program, work):
    own = ["--task", work.task, "--no-grad-norm"] if program == "C++ trainer" else []
    return [*own, "--data", work.data, "--model", work.model, "--epochs", 1000, "--max-steps", work.steps,
            "--batch-size", work.batch_size, *work.more, "--lr-schedule", "constant", "--seed", 0]


def samples_of(step, work, world_size):
    """Samples of all ranks in a step, 1 being the first; the last step of an epoch has what is left."""
    a_rank = math.ceil(work.samples / world_size)
    step_of_epoch = (step - 1) % math.ceil(a_rank / work.batch_size)
    return world_size * min(work.batch_size, a_rank - step_of_epoch * work.batch_size)


def steps_per_second(lines, work, world_size):
    """Of the steps after the warm-up. A line tells the rate since the line before it, so the times add up."""
    seconds = [samples_of(line["step"], work, world_size) / line["samples_per_s"] for line in lines
               if line["step"] > work.warm_up]
    return len(seconds) / sum(seconds)


def run_once(command, work, world_size):
    """Steps per second, and the last loss."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        with bench.Ranks([*command, "--metrics", metrics], world_size) as ranks:
            ranks.wait(DEADLINE)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return steps_per_second(lines, work, world_size), lines[-1]["loss"]


def measure(commands, work, world_size, repetitions):
    """Name to list of results."""
    results = {name: [] for name in commands}
    for _ in range(repetitions):
        for name, command in commands.items():
            results[name].append(run_once([*command, *training(name, work)], work, world_size))
    return results


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/trainer", *{work.data for work in WORKLOADS})
    rows = []
    for world_size, work in itertools.product(WORLD_SIZES, WORKLOADS):
        results = measure(commands, work, world_size, options.repetitions)
        ours = [rate for rate, _ in next(iter(results.values()))]
        for name, result in results.items():
            rates = [rate for rate, _ in result]
            losses = sorted({loss for _, loss in result})
            rows.append([world_size, f"{work.name}, `{work.model}`, {work.steps} steps", name,
                         bench.median_and_range(rates, 0 if rates[0] > 20 else 2),
                         bench.ratio(ours, rates), ", ".join(f"{loss:.9g}" for loss in losses)])
    print(bench.table(["ranks", "model", "program", "steps/s", "the trainer is faster by", "last loss"], rows))
    print()
    print("    # as many processes as ranks, RANK=0 and 1, OMP_NUM_THREADS=1, each way with the model and steps of the "
          "table")
    for work in (WORKLOADS[0], WORKLOADS[-1]):
        for name, command in commands.items():
            print("    " + bench.shown([*command, *training(name, work._replace(model="MODEL", steps="STEPS"))],
                                       options))


if __name__ == "__main__":
    main()
