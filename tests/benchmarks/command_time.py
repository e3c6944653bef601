#!/usr/bin/env python3
"""Milliseconds that `torchbridge exec` adds to the start of an empty program: alone, of 8 ranks on one node under
mpirun, and of 8 tasks on 4 nodes under srun, against the plugin.

Runs on a cluster of 4 nodes made by scripts/cluster/cluster, which `tests/benchmarks/run command` does first.
"""

import os
import statistics
import subprocess
import time

import bench
from launch_time import TASKS, wait_until_idle

ROUNDS_A_REPETITION = 4
EMPTY = "true"


def groups(options):
    """Launcher to its ways: name to command, the plain one first."""
    through = [f"{options.build}/bin/torchbridge", "exec", "--", EMPTY]
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "8"]
    return {
        "nobody": {"plain": [EMPTY], "exec": through},
        "mpirun -np 8": {"plain": [*mpirun, EMPTY], "exec": [*mpirun, *through]},
        "srun -N4 -n8": {"plain": [*TASKS, EMPTY], "exec": [*TASKS, *through],
                         "--torch-env": [*TASKS, "--torch-env", EMPTY]},
    }


def milliseconds(command):
    if command[0] == "srun":
        wait_until_idle()
    start = time.perf_counter()
    subprocess.run([str(word) for word in command], cwd=bench.ROOT, env=os.environ, check=True, capture_output=True,
                   timeout=60)
    return 1000 * (time.perf_counter() - start)


def main():
    options = bench.parser(__doc__).parse_args()
    bench.require(f"{options.build}/bin/torchbridge")
    rows = []
    for launcher, ways in groups(options).items():
        times = {name: [] for name in ways}
        for turn in range(ROUNDS_A_REPETITION * options.repetitions + 1):
            for name, command in ways.items():
                taken = milliseconds(command)
                if turn > 0:  # the first fills the file cache
                    times[name].append(taken)
        for name, taken in times.items():
            added = statistics.median(mine - plain for mine, plain in zip(taken, times["plain"]))
            rows.append([launcher, name, bench.median_and_range(taken, 1), f"{added:.1f}",
                         bench.ratio(taken, times["plain"])])
    print(bench.table(["launcher", "way", "ms", "added, ms", "ratio"], rows))
    print()
    for launcher, ways in groups(options).items():
        for command in ways.values():
            print("    " + bench.shown(command, options))


if __name__ == "__main__":
    main()
