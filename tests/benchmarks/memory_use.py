#!/usr/bin/env python3
"""Memory of a training process without a GPU, and the proof that it has not loaded libtorch_cuda.

Peak is the resident set at its largest (VmHWM). Share is the proportional set size (Pss), where pages that several
processes map are divided among them: what one more rank costs this machine. Means over the ranks of one run.
"""

import pathlib
import re
import statistics
import tempfile
import time

import bench

WORLD_SIZES = (1, 2, 16)
LOOK_AT_STEP = 100  # by then all buffers exist
DEADLINE = 180  # seconds until that step


def programs(options):
    return {
        "C++ trainer": [f"{options.build}/bin/trainer", "--task", "digits", "--quiet"],
        "Python": [options.python, "tests/reference/train_reference.py"],
    }


TRAINING = ["--data", "data/digits", "--model", "mlp:128,64", "--epochs", 100000, "--batch-size", 8,
            "--optimizer", "sgd", "--lr", 0.01]


def wait_for_lines(metrics, number, ranks):
    deadline = time.monotonic() + DEADLINE
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < number:
        if any(process.poll() is not None for process in ranks.processes):
            ranks.give_up("ended too early")
        if time.monotonic() > deadline:
            ranks.give_up(f"no step {number} after {DEADLINE} s")
        time.sleep(0.02)


def mebibytes(pid, file, key):
    text = pathlib.Path(f"/proc/{pid}/{file}").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)[1]) / 1024


def mapped_libraries(pid):
    """File names of the shared libraries in /proc/PID/maps."""
    return set(re.findall(r"/([^/\s]+\.so[^/\s]*)$", pathlib.Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE))


def look_at(command, world_size):
    """Peak and share in MiB of each rank, and the libraries any of them has mapped."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        with bench.Ranks([*command, *TRAINING, "--metrics", metrics], world_size) as ranks:
            wait_for_lines(metrics, LOOK_AT_STEP, ranks)
            pids = [process.pid for process in ranks.processes]
            return ([mebibytes(pid, "status", "VmHWM") for pid in pids],
                    [mebibytes(pid, "smaps_rollup", "Pss") for pid in pids],
                    set().union(*map(mapped_libraries, pids)))


def main():
    options = bench.parser(__doc__).parse_args()
    commands = programs(options)
    bench.require(options.python, f"{options.build}/bin/trainer")
    rows, torch_libraries = [], {}
    for world_size in WORLD_SIZES:
        for name, command in commands.items():
            peaks, shares, libraries = look_at(command, world_size)
            torch_libraries[name] = sorted(library for library in libraries if re.match(r"lib(torch|c10)", library))
            rows.append([world_size, name, f"{statistics.mean(peaks):.0f}", f"{statistics.mean(shares):.0f}",
                         f"{sum(shares):.0f}", len(libraries),
                         "yes" if "libtorch_cuda.so" in libraries else "no"])
    print(bench.table(["ranks", "program", "peak, MiB", "share, MiB", "shares of all ranks, MiB", "libraries mapped",
                       "libtorch_cuda mapped"], rows))
    print("\nOf libtorch, /proc/PID/maps shows: " +
          "; ".join(f"{name}: {', '.join(files)}" for name, files in torch_libraries.items()) + ".\n")
    print(f"    # as many processes as ranks, looked at after step {LOOK_AT_STEP}, OMP_NUM_THREADS=1")
    for command in commands.values():
        print("    " + bench.shown([*command, *TRAINING], options))


if __name__ == "__main__":
    main()
