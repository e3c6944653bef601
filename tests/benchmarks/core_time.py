#!/usr/bin/env python3
"""Milliseconds that core_benchmark takes for each step of a task of a very large job."""

import json
import subprocess

import bench


def main():
    options = bench.parser(__doc__).parse_args()
    program = f"{options.build}/bin/core_benchmark"
    bench.require(program)
    command = [program, "--benchmark_format=json", f"--benchmark_repetitions={options.repetitions}"]
    report = json.loads(subprocess.run(command, cwd=bench.ROOT, check=True, capture_output=True, text=True).stdout)
    times = {}
    for run in report["benchmarks"]:
        if run["run_type"] == "iteration":
            key = run["name"].split("/")[0].replace("_", " "), run.get("label", "")
            times.setdefault(key, []).append(run["cpu_time"])
    rows = [[name, label, bench.median_and_range(values, 2)] for (name, label), values in times.items()]
    print(bench.table(["what", "layout", "ms"], rows))
    print(f"\n    {bench.shown(command, options)}")


if __name__ == "__main__":
    main()
