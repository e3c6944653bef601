"""What the benchmark programs share: rank processes on this machine, medians, Markdown."""

import argparse
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in many images: each import of torch would compile it again
sys.path.append(str(ROOT / "tests/support"))

from free_port import free_port  # noqa: E402


def parser(doc):
    """Options that each program takes."""
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--build", default="build", metavar="DIR", help="build folder (default: %(default)s)")
    result.add_argument("--python", default=".venv/bin/python", help="with torch (default: %(default)s)")
    result.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: %(default)s")
    return result


def require(*paths):
    """Ends the program if a file is missing; paths are relative to the repository's root."""
    for path in paths:
        if not (ROOT / path).exists():
            sys.exit(f"benchmarks: {path} is missing; scripts/bench builds what is needed")


def shown(command, options):
    """A command as the report shows it, the same wherever the build and the Python are."""
    text = shlex.join(map(str, command))
    return text.replace(str(options.build), "build").replace(str(options.python), "python")


def table(headers, rows):
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def median_and_range(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratio(values, references):
    """Of runs that took turns: the median of value / reference in the same turn, which a busy machine changes less."""
    return f"{statistics.median(value / reference for value, reference in zip(values, references)):.2f}"


class Ranks:
    """The processes of one run on this machine, with RANK and its companions set as a user would by hand.

    At the end of a `with` block those that still run are killed. `more`: variables of some ranks,
    {rank: {name: value}}.
    """

    def __init__(self, command, world_size, keep_output=False, more=None):
        self.port = free_port()
        shared = os.environ | {
            "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
        }
        self.command = [str(word) for word in command]
        self.errors = tempfile.TemporaryFile()
        self.written = tempfile.TemporaryFile() if keep_output else None
        self.processes = [
            subprocess.Popen(self.command, cwd=ROOT, stdout=self.written or subprocess.DEVNULL, stderr=self.errors,
                             env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | (more or {}).get(rank, {}))
            for rank in range(world_size)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def wait(self, seconds):
        """Waits for all to end well, or ends the program."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            try:
                process.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                self.give_up(f"not done after {seconds} s")
            if process.returncode != 0:
                self.give_up(f"exit code {process.returncode}")

    def codes(self):
        """Of all ranks; of those that still run None."""
        return [process.returncode for process in self.processes]

    def output(self):
        """What all ranks have printed, where it was to be kept."""
        self.written.seek(0)
        return self.written.read().decode()

    def give_up(self, reason):
        self.errors.seek(0)
        sys.exit(f"benchmarks: {reason}: {shlex.join(self.command)}\n{self.errors.read().decode(errors='replace')}")
