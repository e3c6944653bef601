#!/usr/bin/env python3
"""How long the ranks of a large job need to meet at one store: rank 0 a process, every other rank a thread of
another."""

import re
import subprocess

import bench

RANKS = [256, 1024, 4096]
DEADLINE = 300  # seconds a run may take


def run_of(program, ranks):
    run = subprocess.run([program, str(ranks)], cwd=bench.ROOT, check=True, capture_output=True, text=True,
                         timeout=DEADLINE)
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", run.stdout)}


def main():
    options = bench.parser(__doc__).parse_args()
    program = f"{options.build}/bin/rendezvous_clients"
    bench.require(program)
    results = {ranks: [] for ranks in RANKS}
    for _ in range(options.repetitions):
        for ranks in RANKS:
            results[ranks].append(run_of(program, ranks))
    rows = []
    for ranks, runs in results.items():
        of_store = [run["store_cpu_s"] for run in runs]
        rows.append([ranks, *(bench.median_and_range([run[name] for run in runs], 3)
                              for name in ("joined_s", "store_cpu_s", "clients_cpu_s")),
                     bench.median_and_range([seconds / ranks * 1e6 for seconds in of_store], 0)])
    print(bench.table(["ranks", "until all have met, s", "CPU of store and rank 0, s", "CPU of the others, s",
                       "store's CPU a rank, us"], rows))


if __name__ == "__main__":
    main()
