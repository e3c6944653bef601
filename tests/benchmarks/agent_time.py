#!/usr/bin/env python3
"""Times `torchbridge run` against torchrun in the same run: start, memory, recovery from a killed worker, output.

    tests/benchmarks/agent_time.py --build build --python .venv/bin/python

- start: from the start of the agent until it has ended, with two workers that are `true`.
- memory: of the processes of the agent while its workers sleep, as proportional set size (shared pages count in part).
- recovery: from kill -9 of one of two workers until the first training step after it, with the attempts that took. The
  workers are the trainer, or a Python script; of that one also without the time of its imports.
- output: CPU time and time for a worker's output through --tee to a file that a program reads from a pipe.
"""

import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time

import bench

POLL = 0.001
LIMIT = 40  # seconds; torchrun's workers at times never train again


def agents(options):
    """The beginnings of the two command lines; both run the program that follows directly."""
    return {"torchbridge run": [f"{options.build}/bin/torchbridge", "run", "--no-python"],
            "torchrun": [options.python, "-m", "torch.distributed.run", "--no-python"]}


def environment(**more):
    return os.environ | {"OMP_NUM_THREADS": "1", "LOGLEVEL": "ERROR"} | more


def start_time(agent, options):
    begin = time.monotonic()
    subprocess.run([*agent, "--standalone", "--nproc-per-node", "2", "true"], cwd=bench.ROOT, env=environment(),
                   check=True)
    return 1000 * (time.monotonic() - begin)


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descendants(pid):
    parents = {int(path.name): parent_of(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()}
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found[1:]


def wait_for(fact, what):
    deadline = time.monotonic() + LIMIT
    while not (value := fact()):
        if time.monotonic() > deadline:
            raise SystemExit(f"benchmarks: {what}: not within {LIMIT} s")
        time.sleep(POLL)
    return value


def memory(agent, options):
    """In MB, of the agent's own processes: those that are not `sleep`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*agent, "--standalone", "--nproc-per-node", "2", "sh", "-c",
                   f"touch {folder}/$RANK; exec sleep 1000"]
        with subprocess.Popen(command, cwd=bench.ROOT, env=environment()) as process:
            wait_for(lambda: len(os.listdir(folder)) == 2, "workers")
            sizes = []
            for pid in [process.pid, *descendants(process.pid)]:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("sleep", "sh"):
                    continue
                lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                sizes += [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
            process.send_signal(signal.SIGTERM)
        return sum(sizes) / 1024


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def recovery(agent, program, progress, folder):
    """Seconds from the kill to the first new line of `progress`, and how many attempts were started after it."""
    starts = folder / "starts"
    wrapper = ["sh", "-c", f'[ $RANK = 0 ] && echo $TORCHELASTIC_RESTART_COUNT >> {starts}; exec "$@"', "sh"]
    command = [*agent, "--standalone", "--nproc-per-node", "2", "--max-restarts", "5", *wrapper, *map(str, program)]
    process = subprocess.Popen(command, cwd=bench.ROOT, env=environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(lines_of(progress)) > 20, "training")
        workers = [pid for pid in descendants(process.pid)
                   if b"\0RANK=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()]
        before = len(lines_of(starts))
        os.kill(workers[0], signal.SIGKILL)
        begin = time.monotonic()
        # Lines that the survivor still writes are those of the old attempt.
        while time.monotonic() - begin < LIMIT and process.poll() is None and len(lines_of(starts)) == before:
            time.sleep(POLL)
        marker = len(lines_of(progress))
        while time.monotonic() - begin < LIMIT and process.poll() is None and len(lines_of(progress)) == marker:
            time.sleep(POLL)
        if len(lines_of(progress)) == marker:
            return None
        return time.monotonic() - begin, len(lines_of(starts)) - before
    finally:
        process.terminate()
        process.wait()


def recovery_of_trainer(agent, options, folder):
    curve = folder / "curve.jsonl"
    program = [f"{options.build}/bin/trainer", "--quiet", "--epochs", 10000, "--checkpoint-dir", folder / "runs",
               "--checkpoint-every", 10, "--metrics", curve, "--backend", "gloo"]
    return recovery(agent, program, curve, folder)


def recovery_of_python(agent, options, folder):
    program = [options.python, "tests/programs/agent_worker.py", folder, 1000000]
    return recovery(agent, program, folder / "steps", folder)


def import_time(options):
    begin = time.monotonic()
    subprocess.run([options.python, "-c", "import torch.distributed"], cwd=bench.ROOT, check=True)
    return time.monotonic() - begin


def output_time(agent, options):
    """Of 1 GB in lines of 100 bytes through --tee: seconds, and seconds of CPU time of the agent."""
    count = 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        command = [*agent, "--standalone", "--log-dir", folder, "--tee", "3", "sh", "-c",
                   f"yes {'x' * 99} | head -n {count}"]
        before = os.times()
        begin = time.monotonic()
        with subprocess.Popen(command, cwd=bench.ROOT, env=environment(), stdout=subprocess.PIPE) as process:
            with subprocess.Popen(["wc", "-l"], stdin=process.stdout, stdout=subprocess.PIPE) as counter:
                process.stdout.close()
                lines = int(counter.communicate()[0])
        seconds = time.monotonic() - begin
        after = os.times()
    if lines != count:
        raise SystemExit(f"benchmarks: {lines} of {count} lines came through {agent[0]}")
    return seconds, after.children_user + after.children_system - before.children_user - before.children_system


def main():
    parser = bench.parser(__doc__)
    options = parser.parse_args()
    bench.require(f"{options.build}/bin/torchbridge", f"{options.build}/bin/trainer", options.python)
    choices = agents(options)
    ours, theirs = choices

    def in_turn(measure, repetitions=options.repetitions):
        values = {name: [] for name in choices}
        for _ in range(repetitions):
            for name in random.sample(list(choices), len(choices)):
                values[name].append(measure(choices[name], options))
        return values

    rows = []
    start = in_turn(start_time)
    rows.append(["start with `true`, ms", *[bench.median_and_range(start[name], 1) for name in choices],
                 bench.ratio(start[theirs], start[ours])])
    size = in_turn(memory, 1)
    rows.append(["memory of the agent, MB", *[f"{size[name][0]:.1f}" for name in choices],
                 bench.ratio(size[theirs], size[ours])])
    output = in_turn(output_time, 1)
    for index, title in ((0, "1 GB through --tee, s"), (1, "the same, s of CPU time")):
        part = {name: [value[index] for value in output[name]] for name in choices}
        rows.append([title, *[bench.median_and_range(part[name], 2) for name in choices],
                     bench.ratio(part[theirs], part[ours])])
    for title, measure in (("the trainer", recovery_of_trainer), ("a Python script", recovery_of_python)):
        def of_folder(agent, options, measure=measure):
            with tempfile.TemporaryDirectory() as folder:
                return measure(agent, options, pathlib.Path(folder))
        found = in_turn(of_folder)
        seconds = {name: [value[0] for value in found[name] if value] for name in choices}
        attempts = {name: [value[1] for value in found[name] if value] for name in choices}
        cells = []
        for name in choices:
            lost = sum(value is None for value in found[name])
            text = bench.median_and_range(seconds[name], 2) if seconds[name] else "never"
            text += f"; attempts {', '.join(map(str, attempts[name]))}"
            cells.append(text + (f"; never in {lost} of {len(found[name])} runs" if lost else ""))
        medians = {name: statistics.median(seconds[name]) if seconds[name] else None for name in choices}
        both = None not in medians.values()
        rows.append([f"from kill -9 to the next step of {title}, s", *cells,
                     f"{medians[theirs] / medians[ours]:.2f}" if both else "-"])
        if measure is recovery_of_python and both:
            imports = statistics.median(import_time(options) for _ in range(options.repetitions))
            rest = [max(0.0, medians[name] - imports) for name in choices]
            rows.append([f"the same without the import of torch ({imports:.2f} s)", *[f"{value:.2f}" for value in rest],
                         f"{rest[1] / rest[0]:.2f}" if rest[0] else "-"])
    print(bench.table(["", *choices, "ratio"], rows))


if __name__ == "__main__":
    main()
