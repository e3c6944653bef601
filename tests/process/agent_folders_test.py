#!/usr/bin/env python3
"""What `torchbridge run` leaves below TMPDIR when it ends: only an error file that its summary names.

agent_folders_test.py TORCHBRIDGE
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

TORCHBRIDGE = sys.argv[1]
RECORD = """echo '{"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1"}}}' \\
>$TORCHELASTIC_ERROR_FILE
"""
WAIT = "touch $F/up; exec sleep 600"
FILE = "[ -d $(dirname $TORCHELASTIC_ERROR_FILE) ] || exit 9\n"


def eventually(fact, what):
    deadline = time.monotonic() + 60
    while not fact():
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: not within 60 s: {what}")
        time.sleep(0.01)


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def run(what, script, *options, code, act=None, leaves=0):
    """`act` is called with the process when the worker is up. Returns what is on standard error, and the summary."""
    with tempfile.TemporaryDirectory() as work:
        temporary = pathlib.Path(work, "tmp")
        temporary.mkdir()
        summary = pathlib.Path(work, "summary.json")
        command = [TORCHBRIDGE, "run", "--grace", "2", "--json-summary", summary, *options, "sh", "-c", FILE + script]
        process = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary), "F": work},
                                   stderr=subprocess.PIPE, text=True)
        if act:
            eventually(pathlib.Path(work, "up").exists, f"{what}: the worker runs")
            if not list(temporary.glob("torchbridge_*")):
                sys.exit(f"FAILED: {what}: the run has no folder")
            act(process)
        error = process.communicate(timeout=60)[1]
        if process.returncode != code:
            sys.exit(f"FAILED: {what}: exit code {process.returncode}, not {code}:\n{error}")
        left = list(temporary.iterdir())
        if len(left) != leaves:
            sys.exit(f"FAILED: {what}: {len(left)} folders are left, not {leaves}:\n{error}")
        named = [word for word in error.split() if word.startswith(str(temporary))]
        if (leaves == 0 and named) or not all(os.path.exists(name) for name in named):
            sys.exit(f"FAILED: {what}: it names a file that is not there:\n{error}")
        text = summary.read_text()
        if str(temporary) in text and leaves == 0:
            sys.exit(f"FAILED: {what}: the summary names a folder that is not there:\n{text}")
        return error, json.loads(text) if text else None


def signalled(number):
    return lambda process: process.send_signal(number)


def kill_agent(process):
    os.kill(children_of(process.pid)[0], signal.SIGKILL)


def kill_guardian(process):
    agent = children_of(process.pid)[0]
    process.kill()
    eventually(lambda: has_ended(agent), "the agent has ended")


run("success", "exit 0", code=0)
run("failure", "exit 3", code=3)
run("failure and restarts", "exit 3", "--max-restarts", "1", code=3)
run("success with an older error file", RECORD + "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3", "--max-restarts", "1",
    code=0)
run("no such program", "exit 0", "--no-python", "/no/such/program", code=127)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    run(number.name, RECORD + WAIT, code=128 + number, act=signalled(number))
run("the agent is killed", RECORD + WAIT, code=128 + signal.SIGKILL, act=kill_agent)
run("the guardian is killed", RECORD + WAIT, code=-signal.SIGKILL, act=kill_guardian)

# What the user is told about stays.
error, summary = run("failure with an error file", RECORD + "exit 3", code=3, leaves=1)
if "error file: " not in error or not summary["attempts"][0]["failures"][0]["error_file"]:
    sys.exit(f"FAILED: the error file is not named:\n{error}")
run("logs", "exit 0", "--tee", "3", code=0, leaves=1)
run("filtered output", "exit 0", "--log-format", "json", "--duplicate-stdout-filters", "x", code=0, leaves=1)
run("logs of a killed agent", WAIT, "-r", "3", code=128 + signal.SIGKILL, act=kill_agent, leaves=1)
