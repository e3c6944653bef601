"""What torch's own code makes of the error files that torchbridge::record writes.

    tests/reference/record_reference.py RECORD_CASES

ProcessFailure, by which torchrun reads the file of a worker, reads that of each way to fail; torchrun itself starts
some of them, and its report must name the error.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["LOGLEVEL"] = "ERROR"  # read when torch is imported

import torch.distributed.run as torchrun  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure  # noqa: E402

CLOCK_REALTIME_COARSE = 5  # that of time(2), some milliseconds behind time.time()

# way to fail: wait status as torch has it, the message's begin, what its callstack has
CASES = {
    "throw": (-signal.SIGABRT, 'std::runtime_error: no data in "földer"\nsecond line',
              r"\(throw_error\(std::.*\)\+0x"),
    "throw-bytes": (-signal.SIGABRT, "std::runtime_error: not UTF-8: \ufffd, and an escape: \x1b[31m", r"\+0x"),
    "segfault": (-signal.SIGSEGV, "SIGSEGV: Segmentation fault at address 0x10", r"main\+0x"),
    "overflow": (-signal.SIGSEGV, "SIGSEGV: Segmentation fault at address 0x7", r"\n +\(\d\d+ times or more\)\n"),
    "abort": (-signal.SIGABRT, "SIGABRT: Aborted", r"abort\+0x"),
    "divide": (-signal.SIGFPE, "SIGFPE: Floating point exception", r"main\+0x"),
    "exit": (3, None, None),
}
WITH_TORCHRUN = ("throw", "segfault", "overflow")


def fail(text):
    sys.exit(f"FAILED: {text}")


def check_file(program, how, folder):
    """Runs it, and reads its error file as torchrun does."""
    code, message, stack = CASES[how]
    file = str(folder / f"{how}.json")
    started = int(time.clock_gettime(CLOCK_REALTIME_COARSE))
    process = subprocess.run([program, how], env=os.environ | {"TORCHELASTIC_ERROR_FILE": file}, timeout=30,
                             stderr=subprocess.DEVNULL)
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=process.returncode, error_file=file)
    if process.returncode != code:
        fail(f"{how}: it ended with {process.returncode}, expected {code}")
    if message is None:
        return os.path.exists(file) and fail(f"{how}: there is an error file")
    found, callstack = failure.message["message"], failure.message["extraInfo"]["py_callstack"]
    if not found.startswith(message):
        fail(f"{how}: its message is {found!r}, expected {message!r}")
    if not callstack.startswith(f"{found}\n") or not re.search(stack, callstack):
        fail(f"{how}: its callstack has no {stack!r}:\n{callstack}")
    if not started <= failure.timestamp <= time.time():
        fail(f"{how}: it failed at {failure.timestamp}, expected {started} or some seconds later")


def run_torchrun(line):
    """Its stderr; in a fork of this process, which has imported torch."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            try:
                os.dup2(errors.fileno(), 2)
                torchrun.main(line)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(child, 0)
        errors.seek(0)
        return errors.read()


def check_torchrun(program, how):
    code, message, stack = CASES[how]
    errors = run_torchrun(["--standalone", "--nproc-per-node", "1", "--no-python", program, how])
    report = errors.partition("Root Cause (first observed failure):\n")[2]
    line = re.search(r"^  exitcode  : (-?\d+) ", report, re.MULTILINE)
    if not line or int(line[1]) != code:
        fail(f"torchrun: {how}: no exit code {code}: {errors}")
    traceback = report.partition("  traceback : ")[2]
    if not traceback.startswith(message.replace("\n", "\n  ")) or not re.search(stack, traceback):
        fail(f"torchrun: {how}: its root cause is not {message!r} with {stack!r}: {report}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for how in CASES:
            check_file(program, how, pathlib.Path(folder))
    for how in WITH_TORCHRUN:
        check_torchrun(program, how)
    print(f"{len(CASES)} ways to fail, {len(WITH_TORCHRUN)} of them under torchrun")


if __name__ == "__main__":
    main()
