#!/usr/bin/env python3
"""Seconds from `srun` to the first all-reduce done on all 8 ranks of 4 nodes, for each way to launch.

Runs on a cluster of 4 nodes made by scripts/cluster/cluster, which `tests/benchmarks/run launch` does first: nobody
else may use it, and its nodes share one clock. The ways take turns.
"""

import os
import re
import shlex
import subprocess
import sys
import time

import bench

NODES, TASKS_A_NODE = 4, 2
TASKS = ["srun", "-N", NODES, "-n", NODES * TASKS_A_NODE, "--ntasks-per-node", TASKS_A_NODE]
PLUGIN, BY_HAND = "C++, `--torch-env`", "C++, variables by hand"
PAIR_REPETITIONS = 4  # for each repetition: these are fast and differ little
DEADLINE = 120  # seconds a launch may take


def sinfo(format):
    """One word a node."""
    command = ["sinfo", "--noheader", "-N", f"--format={format}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout.split()


def wait_until_idle():
    """Until the nodes are free of the launch before, for which srun would wait as well."""
    deadline = time.monotonic() + DEADLINE
    while set(sinfo("%T")) != {"idle"}:
        if time.monotonic() > deadline:
            sys.exit(f"launch_time: nodes are not idle after {DEADLINE} s: {' '.join(sinfo('%N=%T'))}")
        time.sleep(0.05)


def ways(options, node):
    """Name to command. {port} is a new number each time."""
    program = f"{options.build}/bin/first_allreduce"
    script = f"{options.python} tests/benchmarks/first_allreduce.py"
    torchrun = f"{options.python} -m torch.distributed.run --nnodes {NODES} --nproc-per-node {TASKS_A_NODE}"
    agents = ["srun", "-N", NODES, "--ntasks-per-node", 1]
    by_hand = (f"RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID MASTER_ADDR={node}"
               f" MASTER_PORT={{port}} exec ")
    return {
        PLUGIN: [*TASKS, "--torch-env", program],
        BY_HAND: [*TASKS, "sh", "-c", by_hand + program],
        "Python, `--torch-env`": [*TASKS, "--torch-env", *script.split()],
        "Python, torchrun, static rendezvous": [
            *agents, "sh", "-c", f"exec {torchrun} --node-rank $SLURM_NODEID --master-addr {node}"
                                 f" --master-port {{port}} {script.split()[1]}"],
        "Python, torchrun, c10d rendezvous": [
            *agents, *torchrun.split(), "--rdzv-backend", "c10d", "--rdzv-id", "bench", "--rdzv-endpoint",
            f"{node}:{{port}}", script.split()[1]],
    }


def launch(command, port):
    """Seconds until each rank had done its first all-reduce, and at last those until srun returned."""
    command = [str(word).replace("{port}", str(port)) for word in command]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    wait_until_idle()
    start = time.time()
    run = subprocess.run(command, cwd=bench.ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE)
    end = time.time()
    done = [float(moment) for moment in re.findall(r"first all-reduce at ([\d.]+) on rank \d+", run.stdout)]
    if run.returncode != 0 or len(done) not in (0, NODES * TASKS_A_NODE):
        sys.exit(f"launch_time: exit code {run.returncode}, {len(done)} ranks: {shlex.join(command)}\n{run.stderr}")
    return [moment - start for moment in sorted(done) + [end]]


def measure(commands, repetitions):
    """Name to list of results. The first round, which fills the file cache, is not counted."""
    results = {name: [] for name in commands}
    port = 28000
    for repetition in range(repetitions + 1):
        for name, command in commands.items():
            port += 1
            taken = launch(command, port)
            if repetition > 0:
                results[name].append(taken)
    return results


def plugin_pairs(commands):
    """The same with and without the plugin: an empty program, and the C++ program."""
    return {
        "`true`": [*TASKS, "true"],
        "`true`, `--torch-env`": [*TASKS, "--torch-env", "true"],
        BY_HAND: commands[BY_HAND],
        PLUGIN: commands[PLUGIN],
    }


def column(results, index):
    return [result[index] for result in results]


def first_all_reduce_table(results):
    ours = column(next(iter(results.values())), -2)
    rows = []
    for name, result in results.items():
        first, end = column(result, -2), column(result, -1)
        rows.append([name, bench.median_and_range(first, 2), bench.ratio(first, ours),
                     bench.median_and_range(end, 2)])
    return bench.table(["way", "first all-reduce, s", "ratio", "srun returns, s"], rows)


def plugin_table(results):
    rows = []
    for name, result in results.items():
        first = bench.median_and_range(column(result, -2), 3) if len(result[0]) > 1 else ""
        rows.append([name, first, bench.median_and_range(column(result, -1), 3)])
    return bench.table(["way", "first all-reduce, s", "srun returns, s"], rows)


def main():
    options = bench.parser(__doc__).parse_args()
    bench.require(options.python, f"{options.build}/bin/first_allreduce")
    commands = ways(options, sinfo("%N")[0])
    pair_repetitions = PAIR_REPETITIONS * options.repetitions
    print(first_all_reduce_table(measure(commands, options.repetitions)))
    print(f"\nWhat the plugin adds, {pair_repetitions} runs of each, in turn:\n")
    print(plugin_table(measure(plugin_pairs(commands), pair_repetitions)))
    print()
    for name, command in commands.items():
        print(f"    # {name}\n    {bench.shown(command, options)}".replace("{port}", "PORT"))


if __name__ == "__main__":
    main()
