#!/usr/bin/env python3
"""A job of one user, beside which another user connects to each of its ports, looks for its secrets, and changes all
that PyTorch's store has once the ranks have joined: training ends with exit code 0, and its losses and weights are
those of an undisturbed run; a rank that stops or dies ends the others soon. Root; in a network namespace of its own.

    strangers_test.py TRAINER
"""

import contextlib
import hashlib
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stranger import Store

RANKS, STEPS, EVERY = 3, 1000, 100
CONNECTIONS = 1100  # more than the soft limit of descriptors
SOFT, HARD = 1024, 16384
PORT = 29500
TIMEOUT = 240
JOB_TIMEOUT_S = 60
USER, STRANGER = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
RUN = "shared-node"


def start(user, command, soft=SOFT, **more):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, HARD))
    return subprocess.Popen([str(word) for word in command], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                            preexec_fn=limit, umask=0o022, **more)


def stranger(*words):
    """The second user runs stranger.py. He may not be able to read the checkout, or this Python."""
    script = Path(__file__).with_name("stranger.py").read_text()
    return start(STRANGER, ["python3", "-c", script, *words], soft=HARD, env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                 cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Job:
    """The ranks of the first user, their folder, and all that they print."""

    def __init__(self, trainer, folder, steps=STEPS):
        self.folder, self.started = folder, time.time()
        folder.mkdir()
        os.chown(folder, USER.pw_uid, USER.pw_gid)
        command = [trainer, "--model", "mlp:200,200", "--optimizer", "adamw",
                   "--epochs", 10000, "--max-steps", steps, "--metrics", folder / "curve.jsonl",
                   "--timeout", JOB_TIMEOUT_S, "--checkpoint-dir", folder / "runs",
                   "--checkpoint-every", EVERY, "--keep", 100]
        self.ranks = []
        for rank in range(RANKS):
            variables = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": RANKS,
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "TORCHELASTIC_RUN_ID": RUN,
                         "OMP_NUM_THREADS": 1, "TMPDIR": folder, "PATH": os.environ["PATH"]}
            with open(folder / f"output{rank}", "wb") as output:
                self.ranks.append(start(USER, command, stdout=output, stderr=output, cwd=folder,
                                        env={name: str(value) for name, value in variables.items()}))

    def end(self):
        deadline = time.monotonic() + TIMEOUT
        with contextlib.suppress(subprocess.TimeoutExpired):
            for rank in self.ranks:
                rank.wait(max(deadline - time.monotonic(), 0.1))
        codes = [rank.poll() for rank in self.ranks]
        self.kill()
        if codes != [0] * RANKS:
            fail(f"the ranks ended with {codes}:\n{self.output()}")

    def wait_for_first_step(self):
        while self.is_running() and not self.curve():
            time.sleep(0.01)

    def is_running(self):
        return all(rank.poll() is None for rank in self.ranks)

    def kill(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def output(self):
        return "".join((self.folder / f"output{rank}").read_text() for rank in range(RANKS))

    def curve(self):
        path = self.folder / "curve.jsonl"
        return [line.split(',"samples_per_s"')[0] for line in path.read_text().splitlines()] if path.exists() else []

    def weights(self):
        return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((self.folder / "runs").glob("step-*/model.safetensors"))}


def fail(text):
    sys.exit(f"FAILED: {text}")


def secrets_of_job():
    """All words of 32 hexadecimal digits in the store: the tokens of the store, the heartbeat and the shared memory."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            store = Store(PORT)
            values = {key: store.value(key) for key in store.keys()}
            if all(any(key.endswith(name) for key in values) for name in (b"/heartbeat", b"shared memory")):
                words = b" ".join(values.values()).split()
                return {word.decode() for word in words if len(word) == 32 and not word.strip(b"0123456789abcdef")}
        time.sleep(0.05)
    fail("the store has no tokens of a heartbeat and of shared memory")


def search(job, secrets, folders):
    """What the second user finds of the secrets, and of a control that lies open in a file, an argument and the name of
    a socket."""
    control = "c0" * 16
    opened = job.folder / os.fsdecode(b"control \xff")
    opened.write_text(control)
    opened.chmod(0o644)
    shown = start(USER, ["sh", "-c", "read -r _", control], stdin=subprocess.PIPE)
    named = socket.socket(socket.AF_UNIX)
    named.bind(f"\0{control}")
    with stranger("search", job.started - 1, *folders, job.folder) as process:
        found, _ = process.communicate("\n".join([*secrets, control]), timeout=TIMEOUT)
    shown.communicate(b"")
    named.close()
    lines = set(found.splitlines())
    for place in (str(opened).encode(errors="backslashreplace").decode(), f"/proc/{shown.pid}/cmdline",
                  "/proc/net/unix"):
        if f"{place} {control}" not in lines:
            fail(f"the search does not find what is open to it in {place}: {found}")
    lines -= {line for line in lines if line.endswith(control)}
    if lines:
        fail("another user reads a secret:\n" + "\n".join(sorted(lines)))
    if any(secret in job.output() for secret in secrets):
        fail("the job prints a secret")


def is_environment_open(job):
    reader = start(STRANGER, ["cat", *(f"/proc/{rank.pid}/environ" for rank in job.ranks)], stdout=subprocess.PIPE,
                   stderr=subprocess.DEVNULL)
    return reader.communicate(timeout=20)[0] != b""


def expect_same(job, undisturbed):
    for attacked, expected in zip(job.curve(), undisturbed.curve()):
        if attacked != expected:
            fail(f"the losses differ: {attacked}, but undisturbed {expected}")
    if not len(job.curve()) == len(undisturbed.curve()) == STEPS:
        fail(f"{len(job.curve())} and {len(undisturbed.curve())} steps")
    if job.weights() != undisturbed.weights() or len(job.weights()) != STEPS // EVERY:
        fail(f"checkpoints differ: {job.weights()} and {undisturbed.weights()}")
    print(f"{STEPS} steps and {len(job.weights())} checkpoints as without the second user")


def run_beside_flood(trainer, folder, undisturbed):
    attack = stranger("flood", USER.pw_uid, CONNECTIONS)
    job = Job(trainer, folder)
    try:
        secrets = secrets_of_job()
        print(f"{len(secrets)} secrets")
        if is_environment_open(job):
            fail("another user reads the environment of a rank")
        search(job, secrets, [])
        if not job.is_running():
            fail(f"the job ended before the search:\n{job.output()}")
        job.end()
        search(job, secrets, ["/tmp", "/dev/shm", "/run", "/var/tmp"])
    finally:
        job.kill()
        attacked, _ = attack.communicate("", timeout=60)
    made = dict(map(int, line.split()[1:]) for line in attacked.splitlines())
    print("connections made to each port:", made)
    many = [port for port, count in made.items() if count >= CONNECTIONS]
    if PORT not in many or len(many) < RANKS + 1:
        fail(f"the second user came too late: {made}")
    expect_same(job, undisturbed)


def run_beside_changed_store(trainer, folder, undisturbed):
    """The second user changes and deletes all keys of the store once the ranks have joined."""
    job = Job(trainer, folder)
    try:
        job.wait_for_first_step()
        with stranger("store", str(PORT)) as attack:
            job.end()
            changed, _ = attack.communicate("", timeout=60)
    finally:
        job.kill()
    turns, deleted = map(int, changed.split()[2:])
    print(f"all keys of the store changed {turns} times, {deleted} deleted")
    if turns < 10 or deleted < 100:
        fail("the second user came too late")
    if "a false line" in job.output():
        fail(f"the job prints what the second user wrote:\n{job.output()}")
    expect_same(job, undisturbed)


def run_failure_beside_changed_store(trainer, folder, signum):
    """Rank 2 stops or dies. The others end before libtorch's time limit, whatever the store says."""
    job = Job(trainer, folder, steps=1000000)
    try:
        job.wait_for_first_step()
        with stranger("store", str(PORT)) as attack:
            if attack.stdout.readline() != "changes\n":
                fail(f"the second user changes nothing:\n{job.output()}")
            job.ranks[2].send_signal(signum)
            for rank in job.ranks[:2]:
                if rank.wait(JOB_TIMEOUT_S - 10) != 1:
                    fail(f"a rank ended with {rank.returncode} after {signum.name}:\n{job.output()}")
            attack.communicate("", timeout=60)
    except subprocess.TimeoutExpired:
        fail(f"no end after {signum.name}:\n{job.output()}")
    finally:
        job.kill()
    lines = re.findall(" rank .*", job.output())
    print(signum.name, *lines, sep="\n")
    if not lines:
        fail("no rank reports the failure")
    if "a false line" in job.output():
        fail("the job prints what the second user wrote")
    if signum == signal.SIGSTOP and "rank 2 sent no heartbeat" not in job.output():
        fail("the rank is not named")


def main():
    check = Path(__file__).parents[1] / "support/other_users_can_run"
    if subprocess.run([check, Path(sys.argv[1]).resolve()], check=False).returncode != 0:
        sys.exit(77)
    if sys.argv[2:] != ["inside"]:
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "inside"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    work = Path(tempfile.mkdtemp())
    work.chmod(0o755)
    try:
        trainer = Path(sys.argv[1]).resolve()
        undisturbed = Job(trainer, work / "undisturbed")
        undisturbed.end()
        run_beside_changed_store(trainer, work / "changed_store", undisturbed)
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            run_failure_beside_changed_store(trainer, work / signum.name, signum)
        run_beside_flood(trainer, work / "flooded", undisturbed)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
