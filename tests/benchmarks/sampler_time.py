#!/usr/bin/env python3
"""Time to the first index of an epoch, and memory for it: our orders and Python's DistributedSampler, from 10^6 to 10^9
samples."""

import statistics
import subprocess

import bench

SIZES = (10**6, 10**7, 10**8, 10**9)
PYTHONS_LARGEST = 10**8  # 10^9 would take about 50 GB
ONCE_FROM = 10**8  # a list takes many seconds
DEADLINE = 600

PYTHON = """
import re, sys, time
from torch.utils.data.distributed import DistributedSampler
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
next(iter(DistributedSampler(range(10), num_replicas=1, rank=0)))
sampler = DistributedSampler(range(int(sys.argv[1])), num_replicas=1, rank=0)
before, begin = peak(), time.perf_counter()
next(iter(sampler))
print(time.perf_counter() - begin, peak() - before)
"""


def programs(options):
    ours = f"{options.build}/bin/sampler_time"
    return {"C++, permuted": [ours, "permuted"], "C++, shuffled": [ours, "shuffled"],
            "Python": [options.python, "-c", PYTHON]}


def measure(command, size):
    done = subprocess.run([*command, str(size)], cwd=bench.ROOT, capture_output=True, text=True, check=True,
                          timeout=DEADLINE)
    return tuple(float(word) for word in done.stdout.split())


def shown_time(seconds):
    middle = statistics.median(seconds)
    unit, factor = ("s", 1) if middle >= 1 else ("ms", 1e3) if middle >= 1e-3 else ("us", 1e6)
    return f"{middle * factor:.3g} {unit} ({min(seconds) * factor:.3g} to {max(seconds) * factor:.3g})"


def main():
    options = bench.parser(__doc__).parse_args()
    bench.require(options.python, f"{options.build}/bin/sampler_time")
    rows = []
    for size in SIZES:
        results = {name: [] for name in programs(options) if name != "Python" or size <= PYTHONS_LARGEST}
        for _ in range(options.repetitions if size < ONCE_FROM else 1):
            for name in results:
                results[name].append(measure(programs(options)[name], size))
        python = [seconds for seconds, _ in results.get("Python", [])]
        for name, values in results.items():
            seconds = [value for value, _ in values]
            rows.append([f"{size:,}", name, shown_time(seconds),
                         bench.ratio(python, seconds) if python else "not run: too much memory",
                         f"{statistics.median(memory for _, memory in values):.0f}"])
    print(bench.table(["samples", "order", "to the first index", "faster than Python by", "memory, MiB"], rows))
    print(f"\nFrom {ONCE_FROM:,} samples on: one run.")
    print("\n    build/bin/sampler_time permuted|shuffled SIZE")


if __name__ == "__main__":
    main()
