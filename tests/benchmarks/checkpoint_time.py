#!/usr/bin/env python3
"""How long a save keeps training, until it is on the disk, and how long reading takes: one rank, against torch.save, DCP and dd.

Every save is synced; for Python's, which do not do it, it is done after them and counted in "on the disk", not in the stall. What is read
comes from the disk: the files are dropped from memory before.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import bench

SAVES = 4  # of which the first, which makes its buffers, is left out
DEADLINE = 600


def run(command):
    done = subprocess.run([str(word) for word in command], cwd=bench.ROOT, capture_output=True, text=True, timeout=DEADLINE)
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


def dd(folder, megabytes):
    """Seconds to write and to read as many bytes of a file that does not compress."""
    folder.mkdir()
    path = folder / "file"
    block = os.urandom(1 << 20)
    source = folder / "source"
    with source.open("wb") as file:
        for _ in range(megabytes * 1_000_000 // len(block)):
            file.write(block)
    times = []
    for words in ([f"if={source}", f"of={path}", "conv=fsync"], [f"if={path}", "of=/dev/null"]):
        if len(times) == 1:
            forget(folder)
        begin = time.monotonic()
        subprocess.run(["dd", "bs=4M", *words], check=True, capture_output=True)
        times.append(time.monotonic() - begin)
    return {"stalls": [0, 0], "totals": [0, times[0]]}, {"load": times[1]}


def measure(name, folder, megabytes, options):
    """What a save and a load took."""
    if name == "dd, synced":
        return dd(folder, megabytes)
    if name.startswith("torchbridge"):
        program = f"{options.build}/bin/checkpoint_speed"
        saved = run([program, folder, megabytes, name.split()[1], SAVES])
        forget(folder)
        return saved, run([program, folder, megabytes, "resume"])
    program = [options.python, "tests/benchmarks/checkpoint_reference.py", folder, megabytes]
    ways = {"torch.save": ("torch_save", "torch_load"), "dcp.save": ("dcp_save", "dcp_load"), "dcp.async_save": ("dcp_async_save", "dcp_load")}
    saved = run([*program, ways[name][0], SAVES])
    forget(folder)
    return saved, run([*program, ways[name][1]])


NAMES = ["torchbridge sync", "torchbridge async", "torch.save", "dcp.save", "dcp.async_save", "dd, synced"]


def rows_for(megabytes, options):
    results = {name: [] for name in NAMES}
    for _ in range(options.repetitions):
        for name in NAMES:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                results[name].append(measure(name, pathlib.Path(folder) / "state", megabytes, options))
    reference = statistics.median(stall for saved, _ in results["torch.save"] for stall in saved["stalls"][1:])
    for name in NAMES:
        stalls = [stall for saved, _ in results[name] for stall in saved["stalls"][1:]]
        totals = [total for saved, _ in results[name] for total in saved["totals"][1:]]
        loads = [read["load"] for _, read in results[name]]
        starts = [read["since_start"] for _, read in results[name] if "since_start" in read]
        stall = statistics.median(stalls)
        yield [f"{megabytes} MB", name, bench.median_and_range(stalls, 3) if stall else "", f"{100 * stall / reference:.1f} %" if stall else "",
               f"{megabytes / statistics.median(totals):.0f}", f"{megabytes / statistics.median(loads):.0f}",
               f"{statistics.median(starts):.2f}" if starts else ""]


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--megabytes", default="100,1000", help="sizes of the state (default: %(default)s)")
    parser.add_argument("--folder", default=None, help="on the disk that is measured (default: that of temporary files)")
    options = parser.parse_args()
    bench.require(options.python, f"{options.build}/bin/checkpoint_speed")
    rows = [row for megabytes in options.megabytes.split(",") for row in rows_for(int(megabytes), options)]
    print(bench.table(["state", "program", "training stands still, s", "of torch.save's", "written and synced, MB/s", "read, MB/s",
                       "start of the process to state loaded, s"], rows))


if __name__ == "__main__":
    main()
