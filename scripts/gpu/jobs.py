"""Runs programs as jobs of one or more ranks on this machine, with the shared libraries that they need."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import socket
import subprocess
import tempfile
import time

from machine import ROOT
from packing import NEEDED
from rows import Failed

REFERENCE = "tests/reference/train_reference.py"
FIRST_LIMIT_S = 300  # of the jobs that begin before one has ended
# On the CPU, which only tests the scripts: a step of the GPU's models takes up to a second there. The rows keep the
# names of the GPU's models.
CPU_BATCH = 8  # samples of text
CPU_MODELS = {"mlp:2048,2048": "mlp:512,512", "gpt:tiny": "gpt:layers=2,heads=2,width=32,context=32",
              "gpt:small": "gpt:layers=2,heads=2,width=64,context=32",
              "gpt:gpt2": "gpt:layers=1,heads=2,width=32,context=32"}


# Below those that Linux gives to connections, so that none takes a port before rank 0 listens there. Each is given once
# in a run of this script, whose other jobs may also be about to listen.
_PORTS = itertools.cycle(random.sample(range(20_000, 32_768), 12_768))


def free_port():
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


@dataclasses.dataclass
class LostRankResult:
    """The end of a job that lost its last rank: exit codes by rank, seconds until the other ranks had ended, stderr."""
    codes: list
    seconds: float
    errors: str


class Jobs:
    """Runs the programs of a build folder, and Python with the same torch. A job that is not done after limit_s seconds
    is ended and failed; the first one, which reads the libraries from the disk, has longer. The files of each job stay
    in a folder below `keep`, where that is given."""

    def __init__(self, torch, build, device, ranks, limit_s, keep, share_gpu):
        self.torch, self.build, self.device, self.ranks, self.share_gpu = torch, build, device, ranks, share_gpu
        self.limit_s, self.later_limit_s, self.keep = max(limit_s, FIRST_LIMIT_S), limit_s, keep
        self.numbers = itertools.count(1)
        self.backend = "NCCL" if device == "cuda" else "gloo"

    @contextlib.contextmanager
    def folder(self):
        """A folder for the files of a job."""
        with contextlib.ExitStack() as stack:
            if self.keep is None:
                yield pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            else:
                folder = self.keep / f"job-{next(self.numbers):03}"
                folder.mkdir(parents=True)
                yield folder

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

    def nccl_log(self, folder):
        """The variables by which NCCL logs into the folder, and libtorch writes its flight record after an error."""
        return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV",
                "NCCL_DEBUG_FILE": str(folder / "nccl-%p.log"),
                "TORCH_FR_DUMP_TEMP_FILE": str(folder / "flight-record-")}

    def own_gpus(self):
        """The variables that give each rank a GPU of its own; with share_gpu the same one."""
        if self.share_gpu:
            # InfiniBand would be used where there is some, whatever the interface.
            return {"CUDA_VISIBLE_DEVICES": visible_gpus(1), "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"}
        return {"CUDA_VISIBLE_DEVICES": visible_gpus(self.ranks)}

    def rank_variables(self, rank):
        """NCCL rejects two ranks on one GPU of a host; NCCL_HOSTID makes it take each rank for a host of its own."""
        own = {"NCCL_HOSTID": f"rank-{rank}"} if self.share_gpu else {}
        return own | {"RANK": str(rank), "LOCAL_RANK": str(rank)}

    def _start(self, command, world_size, out, errors, more):
        shared = self.variables(world_size) | (more or {})
        return [
            subprocess.Popen([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL,
                             stdout=out if rank == 0 else subprocess.DEVNULL, stderr=errors,
                             env=shared | self.rank_variables(rank))
            for rank in range(world_size)]

    @contextlib.contextmanager
    def _started(self, command, world_size, more, folder):
        """The processes of a job, and the folder with its files. A Failed gets the last lines of stderr; at the end no
        process is left."""
        with contextlib.nullcontext(folder) if folder else self.folder() as folder:
            (folder / "command").write_text(shlex.join(map(str, command)) + "\n")
            with open(folder / "stdout", "w") as out, open(folder / "stderr", "w") as errors:
                processes = self._start(command, world_size, out, errors, self.nccl_log(folder) | (more or {}))
            try:
                yield processes, folder
            except Failed as failure:
                end(processes)
                errors = last_lines((folder / "stderr").read_text())
                raise Failed(f"{failure}: {shlex.join(map(str, command))}: {errors}") from None
            finally:
                end(processes)
                self.limit_s = self.later_limit_s

    def run(self, command, world_size=1, more=None, folder=None):
        """The output of rank 0. Raises Failed unless all ranks end with 0 in time. The folder is where the job's files
        are, by default one of its own."""
        with self._started(command, world_size, more, folder) as (processes, folder):
            wait_for(processes, self.limit_s)
            return (folder / "stdout").read_text()

    def lose_last_rank(self, command, number, when, soon_s):
        """Runs a job of all ranks. Sends the signal `number` to the last one as soon as when() is true; None: the rank
        fails by itself. Raises Failed where a rank ends before, or one of the others runs for soon_s seconds after."""
        variables = self.libraries() | self.own_gpus()
        with self._started(command, self.ranks, variables, None) as (processes, folder):
            wait_until(when, processes, self.limit_s)
            begin = time.monotonic()
            if number is not None:
                processes[-1].send_signal(number)
            try:
                for process in processes if number is None else processes[:-1]:
                    process.wait(max(0.0, begin + soon_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"not all other ranks had ended after {soon_s} s") from None
            seconds = time.monotonic() - begin
            end(processes)
            codes = [process.returncode for process in processes]
            return LostRankResult(codes, seconds, (folder / "stderr").read_text())

    def trainer(self, task, data=None, program="trainer"):
        return [self.build / "bin" / program, "--task", task, "--data", data or data_of(task), "--quiet",
                "--device", self.device]

    def gpu_cases(self, case):
        return [self.build / "bin/gpu_cases", case, self.device]

    def cases(self, case, more=None, world_size=1, folder=None):
        """The output of gpu_cases CASE: name to list of values."""
        return values_of(self.run(self.gpu_cases(case), world_size, self.libraries() | (more or {}), folder))

    def watch(self, task, options, folder, data=None):
        """The output of watched_trainer: name to list of values."""
        program = self.trainer(task, data, "watched_trainer")
        variables = self.libraries() | {"TORCH_CPP_LOG_LEVEL": "WARNING"}  # else those of other threads are dropped
        return values_of(self.run([*program, *self.sized(task, options)], 1, variables, folder))

    def train(self, task, options, world_size=1, device=None, more=None, data=None, folder=None):
        """The metrics of the trainer, a dictionary for each step. Without the norm of the gradients, which the
        reference scripts do not compute."""
        program = [*self.trainer(task, data), "--no-grad-norm", "--device", device or self.device]
        return self._metrics(program, self.sized(task, options), world_size, self.libraries() | (more or {}), folder)

    def train_in_python(self, task, options, world_size=1, more=None, data=None, folder=None):
        """The same for the reference script."""
        program = [self.torch["python"], REFERENCE, "--device", self.device, "--data", data or data_of(task)]
        return self._metrics(program, self.sized(task, options), world_size, more, folder)

    def sized(self, task, options):
        """The options; on the CPU with smaller models and a smaller batch of text."""
        if self.device != "cpu":
            return options
        return [CPU_BATCH if task == "text" and before == "--batch-size" else CPU_MODELS.get(word, word)
                for before, word in zip(["", *options], options)]

    def _metrics(self, program, options, world_size, more, folder):
        with contextlib.nullcontext(folder) if folder else self.folder() as folder:
            file = folder / "metrics.jsonl"
            self.run([*program, *options, "--metrics", file], world_size, more, folder)
            return [json.loads(line) for line in file.read_text().splitlines()]


def visible_gpus(count):
    """A value of CUDA_VISIBLE_DEVICES: the first `count` of the GPUs that are visible here."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ",".join(given.split(",")[:count] if given is not None else map(str, range(count)))


def values_of(output):
    """Lines of "NAME VALUE": name to list of values."""
    found = {}
    for line in output.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def data_of(task):
    """The task's data in the source tree."""
    return ROOT / "data" / {"text": "text/pentateuch.txt"}.get(task, task)


def reports_of(text):
    """The lines of our programs that report a failure. Notes have no rank; lines of NCCL's watchdog begin otherwise."""
    return [line for line in text.splitlines() if re.match(r"(trainer|gpu_cases): rank \d+: ", line)]


def last_lines(text):
    """The last three lines, without warnings of libraries."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("[W") and "Warning" not in line]
    return " / ".join(kept[-3:]) or "nothing on stderr"


def wait_until(fact, processes, limit_s):
    deadline = time.monotonic() + limit_s
    while not fact():
        ended = [process.returncode for process in processes if process.poll() is not None]
        if ended:
            raise Failed(f"a rank ended too early, with exit code {ended[0]}")
        if time.monotonic() > deadline:
            raise Failed(f"no training step within {limit_s} s")
        time.sleep(0.05)


def end(processes):
    for process in processes:
        process.kill()
        process.wait()


def wait_for(processes, limit_s):
    """Raises Failed unless all end with 0 in time."""
    deadline = time.monotonic() + limit_s
    try:
        for process in processes:
            code = process.wait(max(0.0, deadline - time.monotonic()))
            if code != 0:
                raise Failed(f"exit code {code}")
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {limit_s} s") from None
