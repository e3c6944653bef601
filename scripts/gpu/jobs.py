"""Runs programs as jobs of one or more ranks on this machine, with the shared libraries that they need."""

import dataclasses
import json
import os
import pathlib
import shlex
import socket
import subprocess
import tempfile
import time

from machine import ROOT
from packing import NEEDED

DEADLINE_S = 300
# On the CPU, which only tests the scripts: a step of the GPU's models takes up to a second there. The rows keep the
# names of the GPU's models.
CPU_BATCH = 8  # samples of text
CPU_MODELS = {"mlp:2048,2048": "mlp:512,512", "gpt:tiny": "gpt:layers=2,heads=2,width=32,context=32"}


class Failed(Exception):
    """A check failed; the message is one line."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class LostRankResult:
    """The end of a job that lost its last rank: exit codes by rank, seconds until the other ranks had ended, stderr."""
    codes: list
    seconds: float
    errors: str


class Jobs:
    """Runs the programs of a build folder, and Python with the same torch."""

    def __init__(self, torch, build, device, ranks=1):
        self.torch, self.build, self.device, self.ranks = torch, build, device, ranks
        self.backend = "NCCL" if device == "cuda" else "gloo"

    def libraries(self):
        """The variable by which our programs find their libraries. Python may need others of the same names."""
        folders = [str(ROOT / NEEDED), self.torch["lib"], os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder)}

    def variables(self, world_size):
        shared = os.environ | {
            "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        }
        # All ranks use the same GPU, also where there are several, unless own_gpus() overrides this.
        return shared | {"CUDA_VISIBLE_DEVICES": visible_gpus(1)}

    def own_gpus(self):
        """The variable that gives each rank a GPU of its own."""
        return {"CUDA_VISIBLE_DEVICES": visible_gpus(self.ranks)}

    def _start(self, command, world_size, out, errors, more):
        shared = self.variables(world_size) | (more or {})
        return [
            subprocess.Popen([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL,
                             stdout=out if rank == 0 else subprocess.DEVNULL, stderr=errors,
                             env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(world_size)]

    def run(self, command, world_size=1, more=None):
        """The output of rank 0. Raises Failed, with the last lines of stderr, unless all ranks end with 0 in time."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            reason = wait_for(self._start(command, world_size, out, errors, more))
            if reason:
                errors.seek(0)
                raise Failed(f"{reason}: {shlex.join(map(str, command))}: {last_lines(errors.read())}")
            out.seek(0)
            return out.read()

    def lose_last_rank(self, command, number, when, soon_s):
        """Runs a job of all ranks. Sends the signal `number` to the last one as soon as when() is true; None: the rank
        fails by itself. Raises Failed where a rank ends before, or one of the others runs for soon_s seconds after."""
        with tempfile.TemporaryFile("w+") as errors:
            processes = self._start(command, self.ranks, subprocess.DEVNULL, errors, self.libraries() | self.own_gpus())
            try:
                wait_until(when, processes)
                begin = time.monotonic()
                if number is not None:
                    processes[-1].send_signal(number)
                for process in processes if number is None else processes[:-1]:
                    process.wait(max(0.0, begin + soon_s - time.monotonic()))
                seconds = time.monotonic() - begin
            except subprocess.TimeoutExpired:
                raise Failed(f"not all other ranks had ended after {soon_s} s") from None
            finally:
                end(processes)
            errors.seek(0)
            return LostRankResult([process.returncode for process in processes], seconds, errors.read())

    def trainer(self, task):
        return [self.build / "bin/trainer", "--task", task, "--data", data_of(task), "--quiet", "--device", self.device]

    def gpu_cases(self, case):
        return [self.build / "bin/gpu_cases", case, self.device]

    def cases(self, case, more=None, world_size=1):
        """The output of gpu_cases CASE: name to list of values."""
        found = {}
        for line in self.run(self.gpu_cases(case), world_size, self.libraries() | (more or {})).splitlines():
            name, _, value = line.partition(" ")
            found.setdefault(name, []).append(value)
        return found

    def train(self, task, options, world_size=1, device=None, more=None):
        """The metrics of the trainer, a dictionary for each step. Without the norm of the gradients, which the
        reference scripts do not compute."""
        program = [*self.trainer(task), "--no-grad-norm", "--device", device or self.device]
        return self._metrics(program, self.sized(task, options), world_size, self.libraries() | (more or {}))

    def train_in_python(self, script, task, options, world_size=1, more=None):
        """The same for a reference script."""
        program = [self.torch["python"], script, "--device", self.device, "--data", data_of(task)]
        return self._metrics(program, self.sized(task, options), world_size, more)

    def sized(self, task, options):
        """The options; on the CPU with smaller models and a smaller batch of text."""
        if self.device != "cpu":
            return options
        return [CPU_BATCH if task == "text" and before == "--batch-size" else CPU_MODELS.get(word, word)
                for before, word in zip(["", *options], options)]

    def _metrics(self, program, options, world_size, more):
        command = [*program, *options]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "metrics.jsonl"
            self.run([*command, "--metrics", file], world_size, more)
            return [json.loads(line) for line in file.read_text().splitlines()]


def visible_gpus(count):
    """A value of CUDA_VISIBLE_DEVICES: the first `count` of the GPUs that are visible here."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ",".join(given.split(",")[:count] if given is not None else map(str, range(count)))


def data_of(task):
    """The task's data in the source tree."""
    return ROOT / "data" / {"text": "text/pentateuch.txt"}.get(task, task)


def last_lines(text):
    """The last three lines, without warnings of libraries."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("[W") and "Warning" not in line]
    return " / ".join(kept[-3:]) or "nothing on stderr"


def wait_until(fact, processes):
    deadline = time.monotonic() + DEADLINE_S
    while not fact():
        ended = [process.returncode for process in processes if process.poll() is not None]
        if ended:
            raise Failed(f"a rank ended too early, with exit code {ended[0]}")
        if time.monotonic() > deadline:
            raise Failed(f"no training step within {DEADLINE_S} s")
        time.sleep(0.05)


def end(processes):
    for process in processes:
        process.kill()
        process.wait()


def wait_for(processes):
    """Ends all processes. Returns the reason where the job failed, else None."""
    deadline = time.monotonic() + DEADLINE_S
    try:
        for process in processes:
            code = process.wait(max(0.0, deadline - time.monotonic()))
            if code != 0:
                return f"exit code {code}"
        return None
    except subprocess.TimeoutExpired:
        return f"not done after {DEADLINE_S} s"
    finally:
        end(processes)
