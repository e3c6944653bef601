#!/usr/bin/env python3
"""What `--torch-env` adds to a step of all nodes of a large cluster: seconds, and requests that slurmctld receives.

Runs on a cluster made by scripts/cluster/cluster, which `tests/benchmarks/run cluster_size` does first; nobody else may
use it. The ways take turns. sdiag tells the requests; those that this program makes itself are left out.
"""

import collections
import os
import re
import statistics
import subprocess
import sys
import time

import bench

WAYS = [[], ["--torch-env"], ["--torch-env=check=60"]]
JOBS_A_REPETITION = 4  # `--repetitions 5`, the default, gives 20
STEPS_AT_ONCE = 4  # more on two cores, and the credentials of the first end (cred_expire=5)
DEADLINE = 300  # seconds a launch may take


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout


def step(nodes, options):
    return ["srun", f"-N{nodes}", *options, "true"]


def requests():
    """Type to how many slurmctld has received."""
    by_type, _, _ = output_of("sdiag").partition("Remote Procedure Call statistics by user")
    counts = re.findall(r"(\w+)\s+\( *\d+\) count:(\d+)", by_type)
    return collections.Counter({kind: int(count) for kind, count in counts})


def wait_until_idle():
    deadline = time.monotonic() + DEADLINE
    while states := set(output_of("sinfo", "--noheader", "--Node", "--format=%T").split()) - {"idle"}:
        if time.monotonic() > deadline:
            sys.exit(f"cluster_size: nodes are {', '.join(states)} after {DEADLINE} s")
        time.sleep(0.05)


def wait_until_quiet():
    """Until slurmctld hears no more of steps whose srun has ended, nor of anything but our question."""
    before = None
    while before != (now := requests().total()) - 1:
        before = now
        time.sleep(0.5)


def run(commands):
    """All at once. Seconds until the last one has ended; one that fails ends the program."""
    start = time.monotonic()
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for command in commands]
    for command, process in zip(commands, processes):
        printed, _ = process.communicate(timeout=DEADLINE)
        if process.returncode != 0:
            sys.exit(f"cluster_size: exit code {process.returncode}: {' '.join(command)}\n{printed}")
    return time.monotonic() - start


def measure(commands_of, wait, repetitions):
    """Prints the seconds and the requests of each way. The first round, which fills the file cache, is left out."""
    before = requests()
    wait()
    left_out = set(requests() - before)
    seconds = [[] for _ in WAYS]
    received = [collections.Counter() for _ in WAYS]
    for repetition in range(repetitions + 1):
        for way, options in enumerate(WAYS):
            before = requests()
            taken = run(commands_of(options))
            wait()
            if repetition > 0:
                seconds[way].append(taken)
                received[way] += requests() - before
    print(seconds_table([commands_of(options)[0] for options in WAYS], seconds), "\n", sep="")
    print(requests_table(repetitions * len(commands_of([])), received, left_out), "\n", sep="", flush=True)


def seconds_table(commands, seconds):
    rows = []
    for command, taken in zip(commands, seconds):
        within_turn = [own / first for own, first in zip(taken, seconds[0])]
        of_medians = statistics.median(taken) / statistics.median(seconds[0])
        way = re.sub(r" -w \S+", " -w NODES", " ".join(command))
        rows.append([f"`{way}`", bench.median_and_range(taken, 3), bench.median_and_range(within_turn, 2),
                     f"{of_medians:.2f}"])
    return bench.table(["way", "s", "ratio within a turn", "ratio of the medians"], rows)


def requests_table(steps, received, left_out):
    rows = [[kind, received[0][kind], *(f"{counts[kind] - received[0][kind]:+}" for counts in received[1:])]
            for kind in sorted(set().union(*received) - left_out)]
    return bench.table([f"requests of {steps} steps", "without", *(f"more with `{' '.join(way)}`" for way in WAYS[1:])],
                       rows)


def measure_jobs(nodes, repetitions):
    print(f"{nodes} nodes, each step a job of its own, {repetitions} runs of each:\n")
    measure(lambda options: [step(nodes, options)], wait_until_idle, repetitions)


def measure_steps(nodes, repetitions):
    """Within an allocation."""
    print(f"{nodes} nodes, {STEPS_AT_ONCE} steps at once in one job, {repetitions} runs of each:\n")
    measure(lambda options: STEPS_AT_ONCE * [step(nodes, ["--overlap", *options])], wait_until_quiet, repetitions)
    print(f"{nodes} nodes, a step in a job, whose layout no variable tells, {repetitions} runs of each:\n")
    backwards = ",".join(reversed(output_of("scontrol", "show", "hostnames").split()))
    arbitrary = ["-m", "arbitrary", "-w", backwards]
    measure(lambda options: [step(nodes, [*arbitrary, *options])], wait_until_quiet, repetitions)


def main():
    options = bench.parser(__doc__).parse_args()
    if "SLURM_JOB_ID" in os.environ:
        measure_steps(int(os.environ["SLURM_NNODES"]), options.repetitions)
        return
    nodes = len(output_of("sinfo", "--noheader", "--Node", "--format=%N").split())
    wait_until_idle()
    measure_jobs(nodes, JOBS_A_REPETITION * options.repetitions)
    subprocess.run(["salloc", "--quiet", f"-N{nodes}", sys.executable, *sys.argv], check=True)


if __name__ == "__main__":
    main()
