#!/usr/bin/env python3
"""How much a save delays training, how long it takes until it is on the disk, and how long reading takes: one rank,
against torch.save, DCP and dd.

The delay is measured in a training, step by step: the call, and what the steps after it take longer than the median of
the four before it. On a busy machine look at the call, the wait for the copy, and what the next step's thread computes
longer.
The rest is measured without one. Every save is synced; for Python's, which do not do it, it is done after them and
counted in "written and synced" alone. What is read comes from the disk: the files are dropped from memory before.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench

SAVES = 4  # of which the first, which makes its buffers, is left out
SAVES_IN_TRAINING = 7
DEADLINE = 600


def run(command, options):
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run([str(word) for word in command], cwd=bench.ROOT, env=environment, capture_output=True,
                          text=True, timeout=DEADLINE)
    if done.returncode != 0:
        sys.exit(f"benchmarks: {command}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def forget(folder):
    """Drops what was written from memory."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def dd(folder, megabytes, direct):
    """Seconds to write and to read as many bytes of a file that does not compress; `direct`: past the page cache."""
    folder.mkdir()
    path = folder / "file"
    block = os.urandom(1 << 20)
    source = folder / "source"
    with source.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())  # it comes from memory, and the disk has nothing else to do
    times = []
    to_disk, from_disk = (["oflag=direct"], ["iflag=direct"]) if direct else ([], [])
    for words in ([f"if={source}", f"of={path}", "conv=fsync", *to_disk], [f"if={path}", "of=/dev/null", *from_disk]):
        if len(times) == 1:
            forget(folder)
        begin = time.monotonic()
        subprocess.run(["dd", "bs=4M", *words], check=True, capture_output=True)
        times.append(time.monotonic() - begin)
    return {"stalls": [0, 0], "totals": [0, times[0]]}, {"load": times[1]}


def measure(name, folder, megabytes, options):
    """What a save and a load took, and saves in a training."""
    if name.startswith("dd"):
        return *dd(folder, megabytes, direct=name == "dd, direct"), []
    if name.startswith("torchbridge"):
        program, ways = [f"{options.build}/bin/checkpoint_speed"], (name.split()[1], "resume")
    else:
        program = [options.python, "tests/benchmarks/checkpoint_reference.py"]
        ways = {"torch.save": ("torch_save", "torch_load"), "dcp.save": ("dcp_save", "dcp_load"),
                "dcp.async_save": ("dcp_async_save", "dcp_load")}[name]
    saved = run([*program, folder, megabytes, ways[0], SAVES], options)
    forget(folder)
    read = run([*program, folder, megabytes, ways[1]], options)
    shutil.rmtree(folder)
    return saved, read, run([*program, folder, megabytes, ways[0], SAVES_IN_TRAINING, options.rows], options)


NAMES = ["torchbridge sync", "torchbridge async", "torch.save", "dcp.save", "dcp.async_save", "dd, synced",
         "dd, direct"]


class Delays:
    """Of a way to save, in all its trainings: seconds."""

    def __init__(self, trainings):
        records = [record for training in trainings for record in training[1:]]
        self.steps = [statistics.median(record["before"]["seconds"]) for record in records]
        # The step after the call is the one that waits for the copy; the later ones go slower while the files are
        # written.
        self.waits = [record["call"] + record["after"]["waits"][0] for record in records]
        self.by_cpu = [record["call"] + record["after"]["waits"][0] + record["after"]["cpu"][0] -
                       statistics.median(record["before"]["cpu"]) for record in records]
        self.stalls = [record["call"] + record["after"]["seconds"][0] - step
                       for record, step in zip(records, self.steps)]
        self.until_written = [record["call"] + sum(record["after"]["seconds"]) - len(record["after"]["seconds"]) * step
                              for record, step in zip(records, self.steps)]


def tables_for(megabytes, options):
    results = {name: [] for name in NAMES}
    for _ in range(options.repetitions):
        for name in NAMES:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                results[name].append(measure(name, pathlib.Path(folder) / "state", megabytes, options))
    delays = {name: Delays([training for _, _, training in results[name]]) for name in NAMES if results[name][0][2]}
    reference = statistics.median(delays["torch.save"].stalls)
    stalls = []
    for name, delay in delays.items():
        stall = statistics.median(delay.stalls)
        stalls.append([f"{megabytes} MB", name, f"{statistics.median(delay.steps):.2f}",
                       bench.median_and_range(delay.waits, 3),
                       bench.median_and_range(delay.by_cpu, 3), bench.median_and_range(delay.stalls, 3),
                       f"{100 * stall / reference:.1f} %", f"{100 * stall / 60:.2f} %",
                       bench.median_and_range(delay.until_written, 2)])
    speeds = []
    for name in NAMES:
        totals = [total for saved, _, _ in results[name] for total in saved["totals"][1:]]
        loads = [read["load"] for _, read, _ in results[name]]
        starts = [read["since_start"] for _, read, _ in results[name] if "since_start" in read]
        speeds.append([f"{megabytes} MB", name, f"{megabytes / statistics.median(totals):.0f}",
                       f"{megabytes / statistics.median(loads):.0f}",
                       f"{statistics.median(starts):.2f}" if starts else ""])
    return stalls, speeds


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--megabytes", default="100,1000", help="sizes of the state (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=128,
                        help="of a batch: how long a step takes (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1,
                        help="of libtorch: with as many as there are cores none is left for the saving (default: "
                        "%(default)s)")
    parser.add_argument("--folder", default=None,
                        help="on the disk that is measured (default: that of temporary files)")
    options = parser.parse_args()
    bench.require(options.python, f"{options.build}/bin/checkpoint_speed")
    tables = [tables_for(int(megabytes), options) for megabytes in options.megabytes.split(",")]
    print(bench.table(["state", "program", "a step, s", "call and wait for the copy, s",
                       "and next step's more CPU time, s", "call and next step's delay, s",
                       "of torch.save's", "of a minute", "delay until written, s"],
                      [row for stalls, _ in tables for row in stalls]))
    print()
    print(bench.table(["state", "program", "written and synced, MB/s", "read, MB/s",
                       "start of the process to state loaded, s"],
                      [row for _, speeds in tables for row in speeds]))


if __name__ == "__main__":
    main()
