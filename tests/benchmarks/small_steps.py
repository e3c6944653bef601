#!/usr/bin/env python3
"""Steps per second where the collective is most of the step: both languages, gloo, gloo over shared memory, and MPI.

Ranks are started with RANK and its companions, as srun --torch-env and torchrun do, and by mpirun. Model, data, batches
and initial weights are the same. The programs take turns; what they are compared with is Python over gloo.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import bench
from training_speed import DEADLINE, Workload, programs, steps_per_second, training

WORKLOADS = [
    (2, Workload("small", "mlp:64", 2000, 100)),
    (16, Workload("the main job", "mlp:128,64", 200, 20, batch_size=8)),
    (2, Workload("large", "mlp:2048,2048", 100, 20)),
]
# Name of the way: program, its options, started by mpirun.
WAYS = {
    "Python, gloo": ("Python, tuned", [], False),
    "C++, gloo": ("C++ trainer", ["--backend", "gloo"], False),
    "C++": ("C++ trainer", [], False),
    "C++, gloo, mpirun": ("C++ trainer", ["--backend", "gloo"], True),
    "C++, mpirun": ("C++ trainer", [], True),
    "C++, mpi, mpirun": ("C++ trainer", ["--backend", "mpi"], True),
    "Python, mpi, mpirun": ("Python, tuned", ["--backend", "mpi"], True),
}


def under_mpirun(command, world_size):
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                "OMP_NUM_THREADS": "1"}
    words = [str(word) for word in ["mpirun", "--oversubscribe", "-np", world_size, *command]]
    subprocess.run(words, cwd=bench.ROOT, env=environment, check=True, capture_output=True, timeout=DEADLINE)


def run_once(command, work, world_size, by_mpirun):
    """Steps per second."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        if by_mpirun:
            under_mpirun([*command, "--metrics", metrics], world_size)
        else:
            with bench.Ranks([*command, "--metrics", metrics], world_size) as ranks:
                ranks.wait(DEADLINE)
        return steps_per_second([json.loads(line) for line in metrics.read_text().splitlines()], work, world_size)


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/trainer")
    rows = []
    for world_size, work in WORKLOADS:
        rates = {way: [] for way in WAYS}
        for _ in range(options.repetitions):
            for way, (program, more, by_mpirun) in WAYS.items():
                command = [*commands[program], *training(program, work), *more]
                rates[way].append(run_once(command, work, world_size, by_mpirun))
        what = f"{work.name}, `{work.model}`, batches of {work.batch_size}"
        rows += [[world_size, what, way, bench.median_and_range(rates[way], 0),
                  bench.ratio(rates[way], rates["Python, gloo"])] for way in WAYS]
    print(bench.table(["ranks", "model", "way", "steps/s", "of Python's over gloo"], rows))


if __name__ == "__main__":
    main()
