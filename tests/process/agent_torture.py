#!/usr/bin/env python3
"""Kills workers and agents of `torchbridge run` at random instants, and checks that the run ends as an undisturbed one.

    tests/process/agent_torture.py --build build --kills 200              # workers are the trainer
    tests/process/agent_torture.py --build build --kills 200 --python     # workers are a Python script
    tests/process/agent_torture.py --build build --kills 200 --python --preload    # and forks of an interpreter

A killed agent is started again with the same command; the interpreter of --preload is killed too. After the given
number of kills the run goes on to its end.
Checked: exit code 0; losses, for Python the parameters too, bit-equal to the undisturbed run; restarts used = workers
killed; no run takes longer than its limit; no process of it is left.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POLL = 0.002
KINDS = ("worker", "guardian", "agent", "interpreter")
LIMIT = 120  # seconds from one kill to the workers of the next attempt, or to the end


class TortureError(Exception):
    """The run did not end as it should."""


def stat_of(pid):
    """(state, parent) of a process; ("X", 0) if there is none."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0


def children_of(pid):
    pids = [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]
    return [child for child in pids if stat_of(child)[1] == pid and stat_of(child)[0] not in "ZX"]


def with_marker(marker):
    """The processes whose environment has it."""
    found = []
    for path in pathlib.Path("/proc").iterdir():
        try:
            if path.name.isdigit() and marker.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return [pid for pid in found if stat_of(pid)[0] not in "ZX"]


def is_interpreter(pid):
    """That of --preload is the one child of an agent that blocks SIGTERM."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1 == 1


def kill_running(pid):
    """False where it had ended, and not yet left the table of processes: what is stopped first has not."""
    deadline = time.monotonic() + LIMIT
    try:
        os.kill(pid, signal.SIGSTOP)
        while (state := stat_of(pid)[0]) not in "TtZX":
            if time.monotonic() > deadline:
                raise TortureError(f"process {pid} does not stop: state {state}")
            time.sleep(POLL)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return state in "Tt"


class Run:
    """One run of `torchbridge run` in a folder, started as often as its agent is killed."""

    def __init__(self, options, folder, name, restarts):
        self.folder = folder / name
        self.folder.mkdir()
        self.marker = f"TORTURE_{uuid.uuid4().hex}"
        self.summary = self.folder / "summary.json"
        self.errors = (self.folder / "errors").open("w+")
        program = [ROOT / "tests/programs/agent_worker.py", self.folder, options.steps]
        self.variables = {self.marker: "1", "OMP_NUM_THREADS": "1", "PYTHON_EXEC": options.python or ""}
        if not options.python:
            program = [options.build / "bin/trainer", "--quiet", "--model", "mlp:100", "--epochs", 100,
                       "--max-steps", options.steps, "--checkpoint-dir", self.folder / "runs",
                       "--checkpoint-every", 5, "--metrics", self.folder / "curve.jsonl",
                       "--heartbeat-timeout", 2, "--timeout", 20]
        self.command = [str(word) for word in [
            options.build / "bin/torchbridge", "run", *(["--preload", "torch"] if options.preload else []),
            "--nproc-per-node", 2, "--max-restarts", restarts, "--grace", 5,
            "--rdzv-id", "torture", "--log-dir", self.folder / "logs", "--json-summary", self.summary, *program]]
        self.interpreter = None
        self.start()

    def start(self):
        self.guardian = subprocess.Popen(self.command, env=os.environ | self.variables,
                                         stdout=subprocess.DEVNULL, stderr=self.errors)

    def fail(self, why):
        self.errors.seek(0)
        raise TortureError(f"{why}\n{self.errors.read()[-5000:]}")

    def workers(self):
        """The two processes of the present attempt, and their agent; nothing while it is not complete."""
        for agent in children_of(self.guardian.pid):
            workers = children_of(agent)
            self.interpreter = next(filter(is_interpreter, workers), None)
            workers = [worker for worker in workers if worker != self.interpreter]
            if len(workers) == 2:
                return agent, workers
        return None

    def wait_for_workers(self, last):
        """Those of another attempt than `last`; nothing where the run has ended."""
        deadline = time.monotonic() + LIMIT
        while self.guardian.poll() is None:
            found = self.workers()
            if found and not set(found[1]) & set(last):
                return found
            if time.monotonic() > deadline:
                self.fail(f"no workers {LIMIT} s after the last kill")
            time.sleep(POLL)
        return None

    def wait(self):
        try:
            code = self.guardian.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.fail(f"it did not end within {LIMIT} s")
        if code != 0:
            self.fail(f"exit code {code}")

    def result(self):
        if (self.folder / "result").exists():
            return (self.folder / "result").read_text().splitlines()
        return [json.loads(line)["loss"] for line in (self.folder / "curve.jsonl").read_text().splitlines()]

    def restarts(self):
        return json.loads(self.summary.read_text())["attempts"][-1]["restart_count"]

    def check_nothing_is_left(self):
        deadline = time.monotonic() + LIMIT
        while left := with_marker(self.marker):
            if time.monotonic() > deadline:
                self.fail(f"processes {left} are left")
            time.sleep(POLL)


def torture(run, kills, longest):
    """Kills, each after a random part of `longest` seconds; returns how many of each."""
    killed = dict.fromkeys(KINDS, 0)
    last = []
    while True:
        found = run.wait_for_workers(last)
        if not found or sum(killed.values()) == kills:
            break
        time.sleep(random.uniform(0, longest))
        agent, workers = found
        what = random.choices(KINDS, weights=(8, 1, 1, 4 if run.interpreter else 0))[0]
        target = {"worker": random.choice(workers), "guardian": run.guardian.pid, "agent": agent,
                  "interpreter": run.interpreter}[what]
        if stat_of(target)[0] in "ZX" or any(stat_of(worker)[0] in "ZX" for worker in workers):
            break  # the run is about to end
        if what != "worker":
            os.kill(target, signal.SIGKILL)
        elif not kill_running(target):
            break
        killed[what] += 1
        last = [] if what == "interpreter" else workers
        if what in ("agent", "guardian"):
            run.guardian.wait(LIMIT)
            run.start()
    return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--python", nargs="?", const=str(ROOT / ".venv/bin/python"))
    parser.add_argument("--preload", action="store_true")
    parser.add_argument("--steps", type=int, help="of a training (default: 400, with --python 3000)")
    # In CI one seed for each commit: a second run says more of the first.
    parser.add_argument("--seed", type=int,
                        default=os.environ.get("TORCHBRIDGE_SEED", random.randrange(1 << 30)))
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.steps = options.steps or (3000 if options.python else 400)
    random.seed(options.seed)
    print(f"agent_torture: seed {options.seed}", flush=True)
    total = dict.fromkeys(KINDS, 0)
    runs = 0
    with tempfile.TemporaryDirectory(prefix="torchbridge-torture-") as name:
        folder = pathlib.Path(name)
        undisturbed = Run(options, folder, "undisturbed", 0)
        undisturbed.wait_for_workers([])
        begin = time.monotonic()  # with --preload the imports come before the workers
        undisturbed.wait()
        longest = time.monotonic() - begin
        expected = undisturbed.result()
        while sum(total.values()) < options.kills:
            run = Run(options, folder, f"run-{runs}", options.kills)
            runs += 1
            killed = torture(run, min(10, options.kills - sum(total.values())), longest)
            run.wait()
            run.check_nothing_is_left()
            if "--preload has no effect" in (run.folder / "errors").read_text():
                run.fail("a worker was not forked")
            if run.result() != expected:
                run.fail("the result differs from the undisturbed run's")
            if run.restarts() != killed["worker"]:
                run.fail(f"{run.restarts()} restarts for {killed['worker']} killed workers")
            for kind, count in killed.items():
                total[kind] += count
    counts = ", ".join(f"{count} {kind}s" for kind, count in total.items())
    print(f"agent_torture: {runs} runs, killed: {counts}; "
          f"all ended with the undisturbed result of {len(expected)} values")


if __name__ == "__main__":
    try:
        main()
    except TortureError as error:
        sys.exit(f"agent_torture: {error}")
