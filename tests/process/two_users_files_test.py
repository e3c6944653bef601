#!/usr/bin/env python3
"""A file by which ranks or agents find each other, in a place where another user has put or locked something first: the
run ends at once with a line that names it, and nothing of the user is touched. Root.

    two_users_files_test.py TORCHBRIDGE TRAINER
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USER, STRANGER = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
LIMIT = 20  # seconds for what has nothing to wait for


def fail(text):
    sys.exit(f"FAILED: {text}")


def start(user, command, **more):
    return subprocess.Popen([str(word) for word in command], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                            cwd="/", text=True, **more)


def as_user(user, command):
    """Runs a shell command of that user to its end."""
    if start(user, ["sh", "-c", command]).wait(LIMIT) != 0:
        fail(f"{user.pw_name}: {command}")


def outcome(processes):
    """Exit codes and error output of processes of the user."""
    deadline = time.monotonic() + 4 * LIMIT
    try:
        errors = [process.communicate(timeout=max(deadline - time.monotonic(), 0.1))[1] for process in processes]
    except subprocess.TimeoutExpired:
        fail(f"no end within {4 * LIMIT} s")
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], "".join(errors)


def train(trainer, file):
    """Two ranks of the user that find each other by the file."""
    ranks = []
    for rank in range(2):
        variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1}
        ranks.append(start(USER, [trainer, "--max-steps", 1, "--init-method", f"file://{file}", "--join-timeout", 5],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           env=os.environ | {name: str(value) for name, value in variables.items()}))
    return outcome(ranks)


def expect_error(found, *texts):
    codes, errors = found
    if 0 in codes or not all(text in errors for text in texts):
        fail(f"expected an error with {texts}, not the exit codes {codes} and\n{errors}")


def links(trainer, work):
    """In a folder that all may write the stranger's link leads to a place where only the user may write."""
    private = work / "private"
    as_user(USER, f"mkdir -m 700 {private}")
    for user, mode, reason in ((USER, "0777", "has the mode 0777"), (STRANGER, "1777", "belongs to uid ")):
        folder = work / f"open{mode}"
        as_user(user, f"mkdir {folder}; chmod {mode} {folder}")
        as_user(STRANGER, f"ln -s {private}/planted {folder}/run.store")
        expect_error(train(trainer, folder / "run.store"), f"its folder '{folder}' {reason}")
    as_user(STRANGER, f"ln -s {private}/planted {work}/run.store")
    expect_error(train(trainer, work / "run.store"), "it is a symbolic link")
    if list(private.iterdir()):
        fail(f"the stranger's link made the user's ranks write {list(private.iterdir())}")


@contextlib.contextmanager
def lock(user, file, operation):
    """That user holds the lock of the file."""
    code = f"import fcntl; file = open('{file}'); fcntl.flock(file, fcntl.{operation}); print(flush=True); input()"
    with start(user, ["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.communicate("\n")


def locks(torchbridge, trainer, work):
    """Who can read a file can lock it."""
    file = work / "file"
    as_user(USER, f"umask 022; : > {file}")
    with lock(STRANGER, file, "LOCK_EX"):
        expect_error(train(trainer, file), "it has the mode 0644: give a file that this user alone can read")
    with lock(STRANGER, file, "LOCK_SH"):
        agent = start(USER, [torchbridge, "run", "--nnodes", "1:2", "--nproc-per-node", 1, "--rdzv-id", "locked",
                             "--rdzv-endpoint", file, "--rdzv-conf", "store_type=file,join_timeout=60", "true"],
                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        expect_error(outcome([agent]), "it has the mode 0644: give a file that this user alone can read")
    as_user(USER, f"chmod 600 {file}")
    with lock(USER, file, "LOCK_EX"):
        expect_error(train(trainer, file), f"rank 0: file://{file}: another process has held its lock for 5 s")


def main():
    check = Path(__file__).parents[1] / "support/other_users_can_run"
    if subprocess.run([check, Path(sys.argv[2]).resolve()], check=False).returncode != 0:
        sys.exit(77)
    trainer = Path(sys.argv[2]).resolve()
    work = Path(tempfile.mkdtemp())
    work.chmod(0o1777)
    try:
        links(trainer, work)
        locks(Path(sys.argv[1]).resolve(), trainer, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
