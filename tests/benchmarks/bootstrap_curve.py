#!/usr/bin/env python3
"""What the nodes of a large step send while they wait for each other, as with `check`, and rank 0's node comes late."""

import re
import statistics
import subprocess

import bench

NODES = [100, 1000, 10000]
DELAYS = [0, 5, 30]  # seconds
DEADLINE = 400  # seconds a run may take


def run_of(program, nodes, delay):
    run = subprocess.run([program, str(nodes), str(delay)], cwd=bench.ROOT, check=True, capture_output=True, text=True,
                         timeout=DEADLINE)
    return {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", run.stdout)}


def main():
    options = bench.parser(__doc__).parse_args()
    program = f"{options.build}/bin/bootstrap_nodes"
    bench.require(program)
    cases = [(nodes, delay) for delay in DELAYS for nodes in NODES]
    results = {case: [] for case in cases}
    for _ in range(options.repetitions):
        for case in cases:
            results[case].append(run_of(program, *case))
    rows = []
    for (nodes, delay), runs in results.items():
        of_runs = {name: [run[name] for run in runs] for name in runs[0]}
        rows.append([nodes, delay, bench.median_and_range(of_runs["seconds"], 2),
                     bench.median_and_range(of_runs["cpu_of_first_s"], 2),
                     bench.median_and_range(of_runs["accepted"], 0), bench.median_and_range(of_runs["syn"], 0),
                     f"{statistics.median(of_runs['syn']) / nodes:.1f}",
                     f"{statistics.median(of_runs['bytes']) / nodes:.0f}"])
    print(bench.table(["nodes", "rank 0's comes late by, s", "then all have the answer within, s",
                       "CPU of rank 0's node, s", "connections", "SYN", "SYN a node", "bytes a node"], rows))


if __name__ == "__main__":
    main()
