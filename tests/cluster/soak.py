#!/usr/bin/env python3
"""Runs thousands of steps in one job, one after the other and many at once, with and without the plugin.

    tests/cluster/soak.py --steps 1000 --at-once 50 --plugin build/lib/torch_env.so

Starts two clusters, one after the other, of which only the second has the plugin, and runs 1,000 steps fifty at a time
and 1,000 one after the other on each (tests/programs/connect_at_port.py). With the plugin rank 0 of each step must be
able to listen at MASTER_PORT, and the ranks of its step must reach it there; two steps that run at the same time must
have different ports. The first step that fails ends the script. Prints the times and the memory of Slurm's daemons on
both clusters.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import bench  # noqa: E402

CLUSTER = ROOT / "scripts/cluster/cluster"
NODES = 2
STEP_LIMIT = 300  # seconds
MAX_GROWTH = 1024  # KiB by which a daemon may grow more than without the plugin
DAEMONS = ("slurmctld", "slurmd")


def daemons(name):
    """The pids of this cluster's daemons of that name: their SLURM_CONF is that of this process."""
    ours = f"SLURM_CONF={os.environ['SLURM_CONF']}".encode()
    pids = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            has_name = (process / "comm").read_text() == f"{name}\n"
            if has_name and ours in (process / "environ").read_bytes().split(b"\0"):
                pids.append(int(process.name))
        except OSError:
            pass  # it has ended
    return pids


def memory_of(name):
    """Sums over the daemons of that name, in KiB. Anonymous: heap and stacks. Pss would depend on other clusters."""
    sums = {"Rss": 0, "Anonymous": 0}
    for pid in daemons(name):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in sums:
                sums[key] += int(rest.split()[0])
    return sums


def wait_for_steps():
    deadline = time.monotonic() + STEP_LIMIT
    while daemons("slurmstepd") and time.monotonic() < deadline:
        time.sleep(0.1)


def run_step(options):
    command = ["srun", "-Q", "--overlap", f"-N{NODES}", f"-n{NODES}", *options, "/usr/bin/python3", "-IS",
               str(ROOT / "tests/programs/connect_at_port.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_LIMIT, stdin=subprocess.DEVNULL)
    lines = [line.split() for line in done.stdout.splitlines()]
    peaks = [int(line[0]) for line in lines]
    ports = [[int(line[1]), float(line[2]), float(line[3])] for line in lines if len(line) == 4]
    well = done.returncode == 0 and len(lines) == NODES and len(ports) == bool(options) and not done.stderr
    return {"peaks": peaks, "ports": ports, "error": "" if well else done.stderr or f"it printed {done.stdout!r}"}


def run_steps(options):
    """Runs in an allocation; prints its results as JSON."""
    steps, seconds = [], []
    memory = [{name: memory_of(name) for name in DAEMONS}]
    for at_once in (options.at_once, 1):
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for step in pool.map(run_step, [options.step_options] * options.steps):
                if step["error"]:
                    pool.shutdown(cancel_futures=True)  # without a slurmd each of the others would wait 11 s
                    sys.exit(f"soak: a step failed, {len(daemons('slurmd'))} of {NODES} slurmd run: {step['error']}")
                steps.append(step)
        seconds.append(time.monotonic() - start)
        wait_for_steps()
        memory.append({name: memory_of(name) for name in DAEMONS})
    print(json.dumps({"steps": steps, "seconds": seconds, "memory": memory}))


def on_a_cluster(up_options, step_options, options):
    name = f"soak-{os.getpid()}"
    subprocess.run([CLUSTER, "up", "--name", name, "--nodes", str(NODES), "--cpus", "64", *up_options], check=True)
    try:
        command = [CLUSTER, "run", "--name", name, "--", "salloc", "--quiet", f"-N{NODES}", sys.executable, __file__,
                   "--steps", str(options.steps), "--at-once", str(options.at_once),
                   f"--inside={' '.join(step_options)}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(1)  # run_steps has printed the reason
        return json.loads(done.stdout)
    finally:
        subprocess.run([CLUSTER, "down", "--name", name], check=True)


def clashes(steps):
    """The ports that two steps had at the same time."""
    last = {}
    found = []
    for port, begin, end in sorted((port for step in steps for port in step["ports"]), key=lambda port: port[1]):
        if begin < last.get(port, 0):
            found.append(port)
        last[port] = max(end, last.get(port, 0))
    return found


def growth(result, name):
    """Growth in KiB during the steps one after the other; steps at once add threads and their heaps to all daemons."""
    return result["memory"][2][name]["Anonymous"] - result["memory"][1][name]["Anonymous"]


def report(options, results):
    rows = [[f"{options.steps} steps, {manner}, s", *(f"{result['seconds'][index]:.1f}" for result in results)]
            for index, manner in enumerate((f"{options.at_once} at a time", "one after the other"))]
    for name in DAEMONS:
        for kind in ("Rss", "Anonymous"):
            rows.append([f"{name}, {kind}, KiB: at the start, after the former steps, after the latter",
                         *(", ".join(str(moment[name][kind]) for moment in result["memory"]) for result in results)])
    peaks = [[peak for step in result["steps"] for peak in step["peaks"]] for result in results]
    rows.append(["slurmstepd, largest Rss of each, KiB", *(bench.median_and_range(each, 0) for each in peaks)])
    print(bench.table(["what", "without the plugin", "with it"], rows))


def faults(without, with_plugin):
    yield from (f"two steps had port {port} at the same time" for port in clashes(with_plugin["steps"]))
    for name in DAEMONS:
        more = growth(with_plugin, name) - growth(without, name)
        if more > MAX_GROWTH:
            yield f"{name} grew by {more} KiB more than without the plugin"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="of each manner (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=50, metavar="N", help="default: %(default)s")
    parser.add_argument("--plugin", default="build/lib/torch_env.so", help="default: %(default)s")
    parser.add_argument("--inside", dest="step_options", type=str.split, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step_options is not None:
        run_steps(options)
        return
    if os.geteuid() != 0:
        print("SKIPPED: a cluster on one machine needs root")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the time limit: `finally` ends the cluster
    results = [on_a_cluster([], [], options), on_a_cluster(["--plugin", options.plugin], ["--torch-env"], options)]
    report(options, results)
    found = list(faults(*results))
    for fault in found:
        print(f"soak: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
