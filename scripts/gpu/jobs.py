"""Programs as jobs of some ranks on this machine, with the shared libraries that they need."""

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


class Failed(Exception):
    """A check did not come out; the message is one line."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Jobs:
    """Starts the programs of a build folder, and Python with the same torch."""

    def __init__(self, torch, build, device):
        self.torch, self.build, self.device = torch, build, device

    def libraries(self):
        """Where our own programs find theirs. Not for Python, which may need others of the same names."""
        folders = [str(ROOT / NEEDED), self.torch["lib"], os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder)}

    def variables(self, world_size):
        shared = os.environ | {
            "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        }
        # One GPU, also where there are several: all ranks share it.
        return shared | {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}

    def run(self, command, world_size=1, more=None):
        """What rank 0 has printed. Failed, with the last lines of stderr, unless all ranks end well in time."""
        shared = self.variables(world_size) | (more or {})
        words = [str(word) for word in command]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            processes = [
                subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out if rank == 0 else subprocess.DEVNULL,
                                 stderr=errors, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                for rank in range(world_size)]
            reason = wait_for(processes)
            if reason:
                errors.seek(0)
                raise Failed(f"{reason}: {shlex.join(words)}: {last_words(errors.read())}")
            out.seek(0)
            return out.read()

    def cases(self, case, more=None):
        """Name to list of values of gpu_cases CASE."""
        found = {}
        for line in self.run([self.build / "bin/gpu_cases", case, self.device], more=self.libraries() | (more or {})).splitlines():
            name, _, value = line.partition(" ")
            found.setdefault(name, []).append(value)
        return found

    def train(self, task, options, world_size=1, device=None, more=None):
        """The metrics of the trainer, a dictionary a step. The gradients' norm, which the reference scripts do not measure, is left out."""
        program = [self.build / "bin/trainer", "--task", task, "--no-grad-norm", "--quiet", "--device", device or self.device]
        return self._metrics(program, task, options, world_size, self.libraries() | (more or {}))

    def train_in_python(self, script, task, options):
        """The same of a reference script, alone."""
        return self._metrics([self.torch["python"], script, "--device", self.device], task, options)

    def _metrics(self, program, task, options, world_size=1, more=None):
        data = ROOT / "data" / {"text": "text/pentateuch.txt"}.get(task, task)  # that which comes along
        command = [*program, "--data", data, *options]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "metrics.jsonl"
            self.run([*command, "--metrics", file], world_size, more)
            return [json.loads(line) for line in file.read_text().splitlines()]


def last_words(text):
    """The last three lines; what libraries warn of is left out."""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith("[W") and "Warning" not in line]
    return " / ".join(told[-3:]) or "no word on stderr"


def wait_for(processes):
    """Nothing, or why the job did not end well; none of its processes is left."""
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
        for process in processes:
            process.kill()
            process.wait()
