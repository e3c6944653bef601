#!/usr/bin/env python3
"""Seconds from `srun` to the first all-reduce done on all 8 ranks of 4 nodes, for each way to launch.

Runs on the Slurm cluster that SLURM_CONF names; `tests/benchmarks/run launch` makes one first. The ways take turns.
The clocks of the nodes must agree (on one machine they do).
"""

import os
import re
import statistics
import subprocess
import sys
import time

import bench

NODES, TASKS_A_NODE = 4, 2
DEADLINE = 120  # seconds a launch may take


def first_node():
    nodes = subprocess.run(["sinfo", "--noheader", "-N", "--format=%N"], capture_output=True, text=True, check=True)
    return nodes.stdout.split()[0]


def ways(options, node):
    """Name to command. {port} is a new number each time."""
    program = f"{options.build}/bin/first_allreduce"
    script = f"{options.python} tests/benchmarks/first_allreduce.py"
    torchrun = f"{options.python} -m torch.distributed.run --nnodes {NODES} --nproc-per-node {TASKS_A_NODE}"
    tasks = ["srun", "-N", NODES, "-n", NODES * TASKS_A_NODE, "--ntasks-per-node", TASKS_A_NODE]
    agents = ["srun", "-N", NODES, "--ntasks-per-node", 1]
    by_hand = (f"RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR={node}"
               f" MASTER_PORT={{port}} exec ")
    return {
        "C++, `--torch-env`": [*tasks, "--torch-env", program],
        "C++, variables by hand": [*tasks, "sh", "-c", by_hand + program],
        "Python, `--torch-env`": [*tasks, "--torch-env", *script.split()],
        "Python, torchrun, static rendezvous": [
            *agents, "sh", "-c", f"exec {torchrun} --node-rank $SLURM_NODEID --master-addr {node}"
                                 f" --master-port {{port}} {script.split()[1]}"],
        "Python, torchrun, c10d rendezvous": [
            *agents, *torchrun.split(), "--rdzv-backend", "c10d", "--rdzv-id", "bench", "--rdzv-endpoint",
            f"{node}:{{port}}", script.split()[1]],
    }


def launch(command, port):
    """Seconds to the first all-reduce of the last rank, and to the end of srun."""
    command = [str(word).replace("{port}", str(port)) for word in command]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    start = time.time()
    run = subprocess.run(command, cwd=bench.ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    end = time.time()
    done = [float(moment) for moment in re.findall(r"first all-reduce at ([\d.]+) on rank \d+", run.stdout)]
    if run.returncode != 0 or len(done) != NODES * TASKS_A_NODE:
        sys.exit(f"launch_time: exit code {run.returncode}, {len(done)} ranks: {' '.join(command)}\n{run.stderr}")
    return max(done) - start, end - start


def measure(commands, repetitions):
    """Name to list of times. The first round, which fills the file cache, is not counted."""
    times = {name: [] for name in commands}
    port = 28000
    for repetition in range(repetitions + 1):
        for name, command in commands.items():
            port += 1
            taken = launch(command, port)
            if repetition > 0:
                times[name].append(taken)
    return times


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the ways whose name holds TEXT")
    options = parser.parse_args()
    bench.require(options.python)
    commands = {name: way for name, way in ways(options, first_node()).items() if options.only in name}
    times = measure(commands, options.repetitions)

    reference = statistics.median(first for first, _ in next(iter(times.values())))
    rows = []
    for name, taken in times.items():
        first = [seconds for seconds, _ in taken]
        rows.append([name, bench.median_and_range(first, 2), f"{statistics.median(s for _, s in taken):.2f}",
                     f"{statistics.median(first) / reference:.2f}"])
    print(bench.table(["way", "first all-reduce, s", "srun returns, s", "ratio"], rows))
    print()
    for name, command in commands.items():
        print(f"    # {name}\n    {bench.shown(command, options)}".replace("{port}", "PORT"))


if __name__ == "__main__":
    main()
