#!/usr/bin/env python3
"""How much of the communication overlaps the backward pass, as c10d's Logger measures it: 2 ranks, three layers of
1,024 x 1,024.

Share is the time in which rank 0 computes and communicates at once, of the time in which it communicates. The programs
take turns.
"""

import itertools
import statistics

import bench

WORLD_SIZE, WIDTH, STEPS = 2, 1024, 60
BATCHES, BUCKET_CAPS = (32, 256), (1, 4, 25)
DEADLINE = 120  # seconds a run may take


def programs(options):
    return {
        "C++": [f"{options.build}/bin/overlap"],
        "Python": [options.python, "tests/benchmarks/overlap_reference.py"],
    }


def measure(command):
    """Milliseconds a step: computing, communicating, both at once."""
    with bench.Ranks(command, WORLD_SIZE, keep_output=True) as ranks:
        ranks.wait(DEADLINE)
        return [float(line) for line in ranks.output().split()]


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/overlap")
    rows = []
    for batch, cap in itertools.product(BATCHES, BUCKET_CAPS):
        results = {name: [] for name in commands}
        for _ in range(options.repetitions):
            for name, command in commands.items():
                results[name].append(measure([*command, WIDTH, batch, cap, STEPS]))
        for name, runs in results.items():
            computing, communicating, both = (statistics.median(column) for column in zip(*runs))
            share = [100 * run[2] / run[1] for run in runs]
            rows.append([batch, cap, name, f"{computing:.1f}", f"{communicating:.1f}", f"{both:.1f}",
                         bench.median_and_range(share, 0)])
    print(bench.table(["batch a rank", "bucket_cap_mb", "program", "computing, ms", "communicating, ms", "both, ms",
                       "share, %"], rows))
    print(f"\n    # {WORLD_SIZE} processes, OMP_NUM_THREADS=1")
    for command in commands.values():
        print("    " + bench.shown([*command, WIDTH, "BATCH", "BUCKET_CAP_MB", STEPS], options))


if __name__ == "__main__":
    main()
