#!/usr/bin/env python3
"""Times a start and a restart with `torchbridge run --preload torch`, without it, and with torchrun, in one run.

    tests/benchmarks/preload_time.py --build build --python .venv/bin/python

- start: from the start of the agent until the last rank has the sum of the first all-reduce, and has made the first
  step of DDP, over gloo. The CPU time of that is what a busy machine changes least.
- restart: from kill -9 of one of two workers until the first step of the next attempt.
- memory: of a rank, as proportional set size (shared pages count in part).
- look-ups: system calls with a path in a start of 8 ranks, by strace.
- slow file system: the same start where each of these calls takes a millisecond more.
"""

import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

import bench

SIZES = (2, 8, 16)
LARGEST = 64  # ranks, which fit into the memory of a small machine as forks alone
TRACED = 8  # ranks
LIMIT, RESTART_LIMIT = 600, 180  # seconds
WORKER = "tests/benchmarks/preload_worker.py"


def ways(options):
    """The beginnings of the command lines."""
    ours = [f"{options.build}/bin/torchbridge", "run"]
    return {"--preload torch": [*ours, "--preload", "torch"], "torchbridge run": ours,
            "torchrun": [options.python, "-m", "torch.distributed.run"]}


def without_ddp(options):
    """For a program that does not need DDP, whose constructor imports torch._dynamo."""
    return [f"{options.build}/bin/torchbridge", "run", "--preload", "torch.distributed"]


def cpu_time():
    """Seconds of all processes that this one has waited for, and their own children."""
    times = os.times()
    return times.children_user + times.children_system


class Start:
    """One run; `before` is put before the command line. `reduced` and `stepped` are seconds from the start."""

    def __init__(self, way, ranks, options, before=(), more=()):
        python = pathlib.Path(options.python)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "LOGLEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": "-1",
                                    "PYTHON_EXEC": str(bench.ROOT / python)}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            command = [*before, *way, "--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "5", WORKER,
                       folder, *more]
            begin, before = time.time(), cpu_time()
            process = subprocess.Popen(list(map(str, command)), cwd=bench.ROOT, env=environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       start_new_session=True)
            try:
                self.error = process.communicate(timeout=RESTART_LIMIT if more else LIMIT)[1]
            except subprocess.TimeoutExpired:
                process.terminate()  # which ends its workers, that are in sessions of their own
                process.communicate()
                self.recovered = None  # torchrun's workers at times never train again
                if more:
                    return
                raise SystemExit(f"benchmarks: {bench.shown(command, options)}: not within {LIMIT} s")
            if process.returncode != 0:
                raise SystemExit(f"benchmarks: {bench.shown(command, options)}:\n{self.error}")
            self.cpu_time = cpu_time() - before
            rows = [[float(word) for word in line.split()] for line in (folder / "times").read_text().splitlines()]
            self.attempts = len(rows) // ranks
            last = rows[-ranks:]
            self.reduced, self.stepped = (max(row[column] for row in last) - begin for column in (0, 1))
            self.memory = statistics.mean(row[2] for row in last)
            killed = folder / "killed"
            self.recovered = begin + self.stepped - float(killed.read_text()) if killed.exists() else 0


def look_ups(way, options):
    """Of all processes of a start."""
    with tempfile.NamedTemporaryFile("r") as counts:
        Start(way, TRACED, options, ["strace", "-f", "--seccomp-bpf", "-c", "-e", "trace=%file", "-o", counts.name])
        total, = re.findall(r"(\d+)\s+(?:\d+\s+)?total", counts.read())
        return int(total)


def slow_start(way, options):
    """Seconds until the first step."""
    return Start(way, TRACED, options, ["strace", "-f", "--seccomp-bpf", "-e", "trace=%file", "-e",
                                      "inject=%file:delay_enter=1000", "-o", "/dev/null"]).stepped


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="ranks of the starts")
    options = parser.parse_args()
    bench.require(f"{options.build}/bin/torchbridge", options.python)
    choices = ways(options)
    ours = next(iter(choices))

    def in_turn(measure, repetitions=options.repetitions):
        values = {name: [] for name in choices}
        for _ in range(repetitions):
            for name in random.sample(list(choices), len(choices)):
                values[name].append(measure(choices[name]))
        return values

    def print_row(title, values, digits):
        cells = [bench.median_and_range(values[name], digits) for name in choices]
        cells += [bench.ratio(values[name], values[ours]) for name in choices if name != ours]
        print("| " + " | ".join([title, *cells]) + " |", flush=True)

    def part(found, what):
        return {name: [getattr(start, what) for start in found[name]] for name in choices}

    print(bench.table(["", *choices, *[f"{name} / ours" for name in choices if name != ours]], []))
    for ranks in options.sizes:
        starts = in_turn(lambda way, ranks=ranks: Start(way, ranks, options))
        print_row(f"{ranks} ranks to the first all-reduce, s", part(starts, "reduced"), 2)
        alone = [Start(without_ddp(options), ranks, options).reduced for _ in range(options.repetitions)]
        print(f"| the same with --preload torch.distributed, s | {bench.median_and_range(alone, 2)} |", flush=True)
        print_row(f"{ranks} ranks to the first step of DDP, s", part(starts, "stepped"), 2)
        print_row(f"CPU time of {ranks} ranks, s", part(starts, "cpu_time"), 1)
        print_row(f"memory of a rank of {ranks}, MB", part(starts, "memory"), 0)
    starts = [Start(choices[ours], LARGEST, options) for _ in range(options.repetitions)]
    for title, what, digits in (("{} ranks to the first all-reduce, s", "reduced", 2),
                                ("{} ranks to the first step of DDP, s", "stepped", 2),
                                ("memory of a rank of {}, MB", "memory", 0)):
        values = [getattr(start, what) for start in starts]
        print(f"| {title.format(LARGEST)} | {bench.median_and_range(values, digits)} |", flush=True)
    restarts = in_turn(lambda way: Start(way, 2, options, more=["kill"]))
    cells = []
    for name, values in part(restarts, "recovered").items():
        seen = [value for value in values if value is not None]
        lost = f"not within {RESTART_LIMIT} s in {len(values) - len(seen)} of {len(values)} runs"
        cells.append("; ".join([bench.median_and_range(seen, 2)] * bool(seen) + [lost] * (len(seen) < len(values))))
    print("| kill -9 to the next step of 2 ranks, s | " + " | ".join(cells) + " |", flush=True)
    traced = (("look-ups of files in a start of {} ranks", look_ups, 0),
              ("start of {} ranks to the first step where each look-up takes 1 ms more, s", slow_start, 1))
    for title, measure, digits in traced:
        values = in_turn(lambda way, measure=measure: measure(way, options), 1)
        print_row(title.format(TRACED), values, digits)


if __name__ == "__main__":
    main()
