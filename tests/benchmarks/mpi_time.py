#!/usr/bin/env python3
"""The MPI backend against gloo over loopback TCP, in one program under mpirun: microseconds of 1 KB, GB/s of 64 MB."""

import os
import re
import subprocess
import tempfile

import bench

RANKS = [2, 4]
DEADLINE = 300  # seconds a run may take
LINE = r"(mpi|gloo) ranks=\d+ latency_us=([\d.]+) bandwidth_GB_s=([\d.]+)"


def run_of(program, ranks):
    """Backend to (microseconds, GB/s)."""
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["mpirun", "--oversubscribe", "-np", str(ranks), program, f"{folder}/store"],
                             cwd=bench.ROOT, env=environment, check=True, capture_output=True, text=True,
                             timeout=DEADLINE)
    return {name: (float(latency), float(bandwidth)) for name, latency, bandwidth in re.findall(LINE, run.stdout)}


def main():
    options = bench.parser(__doc__).parse_args()
    program = f"{options.build}/bin/mpi_allreduce"
    bench.require(program)
    rows = []
    for ranks in RANKS:
        runs = [run_of(program, ranks) for _ in range(options.repetitions)]
        for index, (what, digits) in enumerate([("1 KB, us", 1), ("64 MB, GB/s", 2)]):
            mpi, gloo = ([run[name][index] for run in runs] for name in ("mpi", "gloo"))
            rows.append([ranks, what, bench.median_and_range(mpi, digits), bench.median_and_range(gloo, digits),
                         bench.ratio(mpi, gloo)])
    print(bench.table(["ranks", "what", "mpi", "gloo", "mpi / gloo"], rows))


if __name__ == "__main__":
    main()
