#!/usr/bin/env python3
"""Nobody reads the output of a run: it waits, and loses nothing, until a signal; then it ends within --grace.

agent_stuck_reader_test.py TORCHBRIDGE
"""

import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from free_port import free_port  # noqa: E402

TORCHBRIDGE = sys.argv[1]
GRACE, MARGIN = 2, 8  # seconds; the latter for a machine that has much to do
ENDLESS = "while :; do echo 0123456789012345678901234567890123456789; done"
LINES = 80_000
SOME = f"seq {LINES}"  # more than a pipe holds, less than that and what the agent keeps


def eventually(fact, what):
    deadline = time.monotonic() + 60
    while not fact():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: not within 60 s: {what}")
        time.sleep(0.01)


def children_of(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Run:
    """A run whose output nobody reads: both streams go to a pipe or to sockets."""

    def __init__(self, what, script, *options, kind=os.pipe, grace=GRACE, error=None, user=None, fills=True):
        self.what = what
        self.reader, self.writer = kind()
        command = [TORCHBRIDGE, "run", "--log-dir", "/dev/null", "--tee", "3", "--grace", str(grace), *options]
        self.process = subprocess.Popen([*command, "sh", "-c", script], stdout=self.writer, user=user,
                                        stderr=self.writer if error is None else error)
        poll = select.poll()
        poll.register(self.writer, select.POLLOUT)
        if fills:
            eventually(lambda: not poll.poll(0), f"{what}: no more fits into the output")

    def agent(self):
        return children_of(self.process.pid)[0]

    def wait_for_workers(self):
        eventually(lambda: not children_of(self.agent()), f"{self.what}: the workers have ended")

    def send(self, number):
        self.process.send_signal(number)

    def ends(self, code, seconds=GRACE + MARGIN):
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit(f"FAILED: {self.what}: it did not end within {seconds} s")
        if found != code:
            sys.exit(f"FAILED: {self.what}: it ended with {found}, not with {code}")
        os.close(self.reader)
        os.close(self.writer)


def text_of(file):
    return os.pread(file.fileno(), 1 << 20, 0).decode()  # the offset is also that of the run


def sockets():
    left, right = socket.socketpair()
    return left.detach(), right.detach()


def expect_line(file, text):
    found = text_of(file)
    if not re.search(text, found):
        sys.exit(f"FAILED: no line '{text}' in:\n{found}")


CUT = r"torchbridge: the last [0-9]+ bytes of standard output were not printed: their reader did not take them in time"

with tempfile.TemporaryFile() as error:
    run = Run("SIGTERM while workers print", ENDLESS, "--nproc-per-node", "2", error=error)
    run.send(signal.SIGTERM)
    run.ends(128 + signal.SIGTERM)
    expect_line(error, CUT)

for kind in (os.pipe, sockets):
    run = Run(f"SIGTERM, and standard error is stuck too, {kind.__name__}", ENDLESS, kind=kind)
    run.send(signal.SIGTERM)
    run.ends(128 + signal.SIGTERM)

if os.geteuid() == 0:  # such a pipe cannot be opened a second time, to be written to without waiting
    try:
        run = Run("SIGTERM with another user's pipe", ENDLESS, user="nobody")
    except PermissionError as error:
        print(f"not tried: another user's pipe: {error}")
    else:
        run.send(signal.SIGTERM)
        run.ends(128 + signal.SIGTERM)

# Over two nodes, of the agent that coordinates.
nodes = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
other = subprocess.Popen([TORCHBRIDGE, "run", *nodes, "--rdzv-conf", "is_host=false", "--grace", str(GRACE), "sleep",
                          "600"], stderr=subprocess.DEVNULL)
run = Run("SIGTERM over two nodes", ENDLESS, *nodes)
run.send(signal.SIGTERM)
run.ends(128 + signal.SIGTERM)
other.wait(GRACE + MARGIN)

with tempfile.TemporaryFile() as error:
    run = Run("SIGTERM when the workers have ended", SOME, error=error)
    run.wait_for_workers()
    run.send(signal.SIGTERM)
    run.ends(0)
    expect_line(error, CUT)

# The summary goes to a reader that does not read, or that has not come.
with tempfile.TemporaryFile() as error, tempfile.TemporaryDirectory() as folder:
    run = Run("SIGTERM, and the summary is stuck", SOME, "--json-summary", "/dev/stdout", error=error)
    run.wait_for_workers()
    run.send(signal.SIGTERM)
    run.ends(0)
    expect_line(error, "torchbridge: --json-summary '/dev/stdout': cannot write it")

    pipe = pathlib.Path(folder) / "pipe"
    os.mkfifo(pipe)
    run = Run("SIGTERM, and nobody reads the summary's pipe", "exit 7", "--json-summary", str(pipe), error=error,
              fills=False)
    eventually(lambda: "exit code 7" in text_of(error), f"{run.what}: the worker has ended")
    run.send(signal.SIGTERM)
    run.ends(7)
    run = Run("a late reader of the summary's pipe", "exit 7", "--json-summary", str(pipe), error=error, fills=False)
    if not pipe.read_text().rstrip().endswith("}"):
        sys.exit("FAILED: a late reader did not get the summary")
    run.ends(7)

# An agent that is stopped gets the signal, and goes on.
run = Run("SIGTERM while the agent is stopped", "sleep 600", fills=False)
eventually(lambda: children_of(run.process.pid) and children_of(run.agent()), f"{run.what}: the worker runs")
os.kill(run.agent(), signal.SIGSTOP)
run.send(signal.SIGTERM)
run.ends(128 + signal.SIGTERM)

run = Run("ctrl-C twice when the workers have ended", SOME, grace=600)
run.wait_for_workers()
presses = 0
while run.process.poll() is None and presses < 60:
    run.send(signal.SIGINT)
    presses += 1
    try:
        run.process.wait(0.3)  # two that come at once are one
    except subprocess.TimeoutExpired:
        pass
run.ends(0, MARGIN)
if presses < 2:
    sys.exit(f"FAILED: {run.what}: it ended at the first one")

run = Run("the agent is killed", ENDLESS)
os.kill(run.agent(), signal.SIGKILL)
run.ends(128 + signal.SIGKILL, MARGIN)

run = Run("the guardian is killed", ENDLESS)
agent = run.agent()
run.send(signal.SIGKILL)
run.process.wait()
eventually(lambda: has_ended(agent), f"{run.what}: the agent has ended")

# Without a signal the run waits, and nothing is lost.
run = Run("a slow reader", SOME)
run.wait_for_workers()
os.close(run.writer)
with os.fdopen(os.dup(run.reader)) as lines:
    found = [line.partition("]:")[2].strip() for line in lines]
run.writer = os.open(os.devnull, os.O_RDONLY)
run.ends(0)
if found != [str(number) for number in range(1, LINES + 1)]:
    sys.exit(f"FAILED: a slow reader got {len(found)} lines of {LINES}")
