#!/usr/bin/env python3
"""Seconds until a group of 2, 16 and 64 ranks of this machine has added up one number, in C++ and in Python.

Python twice: as it is started, and forked after `import torch`, from init_process_group on. The ways take turns.
"""

import re
import subprocess
import time

import bench

MIB_OF_A_PYTHON_RANK = 370  # of its own, where 16 share one machine (docs/develop/benchmarks.md)
DEADLINE = 300  # seconds a run may take


def memory_for(ranks):
    """Whether so many ranks of Python fit into what is free."""
    with open("/proc/meminfo") as file:
        available = int(re.search(r"MemAvailable:\s+(\d+)", file.read()).group(1)) / 1024
    return ranks * MIB_OF_A_PYTHON_RANK < 0.8 * available


def started(command, ranks):
    """Seconds from the start of the first process until the last rank had the sum."""
    start = time.time()
    with bench.Ranks(command, ranks, keep_output=True) as run:
        run.wait(DEADLINE)
        done = re.findall(r"first all-reduce at ([\d.]+) on rank \d+", run.output())
    assert len(done) == ranks, f"{len(done)} of {ranks} ranks said that they are done"
    return max(map(float, done)) - start


def forked(options, ranks):
    command = [options.python, "tests/benchmarks/first_allreduce_ranks.py", str(ranks), str(bench.free_port())]
    run = subprocess.run(command, cwd=bench.ROOT, check=True, capture_output=True, text=True, timeout=DEADLINE)
    return float(run.stdout)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 16, 64], metavar="N", help="default: %(default)s")
    options = parser.parse_args()
    program = f"{options.build}/bin/first_allreduce"
    bench.require(options.python, program)
    rows = []
    for ranks in options.ranks:
        ways = {"C++": lambda: started([program], ranks), "Python, forked after import": lambda: forked(options, ranks)}
        if memory_for(ranks):
            ways["Python"] = lambda: started([options.python, "tests/benchmarks/first_allreduce.py"], ranks)
        taken = {way: [] for way in ways}
        for repetition in range(options.repetitions + 1):
            for way, run in ways.items():
                seconds = run()
                if repetition > 0:  # the first round fills the file cache
                    taken[way].append(seconds)
        for way, seconds in taken.items():
            rows.append([ranks, way, bench.median_and_range(seconds, 2), bench.ratio(seconds, taken["C++"])])
        if "Python" not in taken:
            rows.append([ranks, "Python", f"needs more than {ranks * MIB_OF_A_PYTHON_RANK // 1024} GiB", ""])
    print(bench.table(["ranks", "way", "first all-reduce, s", "ratio"], rows))


if __name__ == "__main__":
    main()
