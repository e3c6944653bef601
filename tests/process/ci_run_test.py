#!/usr/bin/env python3
"""The last line of .ci/run where its steps end as they may; stand-ins take the place of the steps.

    ci_run_test.py RUN      by ctest
"""

import pathlib
import re
import signal
import subprocess
import sys

from case_runner import run_table

RUN = pathlib.Path(sys.argv[1])
VERDICT = "tests: green: 9 of 9 passed, 0 skipped; no test failed"
PHASES = "mkdir -p build/ci; echo 'set-up 1' >build/ci/phases; "
BUILT = PHASES + "echo 'build 1' >>build/ci/phases; "
TESTED = BUILT + "echo 'tests 1' >>build/ci/phases; "
PASSED = TESTED + f"printf 'test\\tfailed\\n' >build/ci/unstable.tsv; echo '{VERDICT}' >build/ci/verdict"

CASES = {
    "all steps pass": dict(last=f"CI: green after N s: {VERDICT}"),
    "packages cannot be had": dict(
        test="exit 69", code=1,
        last="CI: red after N s: set-up failed: packages could not be had. "
             "It is not the change, unless that names others"),
    "set-up fails": dict(test="exit 1", code=1, last="CI: red after N s: set-up failed"),
    "the build fails": dict(
        test=PHASES + "exit 2", code=1, last="CI: red after N s: the checks of the sources or the build failed"),
    "the build takes too long": dict(
        test=PHASES + "exit 124", code=1,
        last="CI: red after N s: the checks of the sources or the build took too long"),
    "a test fails": dict(
        test=TESTED + "echo 'tests: red: why' >build/ci/verdict; exit 1", code=1,
        last="CI: red after N s: tests: red: why"),
    "a header does not compile": dict(
        headers="echo 'FAILED Slurm 1'; exit 1", code=1,
        last=f"CI: red after N s: {VERDICT}; scripts/slurm_headers failed"),
    "a suite of headers is skipped": dict(
        headers="exit 77", last=f"CI: green after N s: {VERDICT}; parts of scripts/slurm_headers skipped"),
    "a release fails": dict(
        releases="echo 'trixie: FAILED one'; exit 1", code=1,
        last=f"CI: red after N s: {VERDICT}; scripts/releases failed"),
    "a release takes too long": dict(
        releases="echo 'trixie: ok     one'; exit 124",
        last=f"CI: green after N s: {VERDICT}; scripts/releases left out after 1240 s"),
    "a release fails and then takes too long": dict(
        releases="echo 'trixie: FAILED one'; exit 124", code=1,
        last=f"CI: red after N s: {VERDICT}; scripts/releases failed"),
    "a case of a release is unstable": dict(
        releases="echo 'trixie: unstable one'", unstable=["trixie: unstable one"],
        last=f"CI: green after N s: {VERDICT}; unstable on trixie: one"),
    "a test fails with the oldest torch": dict(
        torch="exit 1", code=1, last=f"CI: red after N s: {VERDICT}; scripts/torch_versions failed"),
    "the packages of the oldest torch cannot be had": dict(
        torch="exit 77", last=f"CI: green after N s: {VERDICT}; parts of scripts/torch_versions skipped"),
    "the time is over with the oldest torch": dict(
        torch="exit 124",
        last=f"CI: green after N s: {VERDICT}; scripts/torch_versions left out after N s"),
    "a test is unstable with the oldest torch": dict(
        torch="echo 'torch-2.11.0: unstable one'", unstable=["torch-2.11.0: unstable one"],
        last=f"CI: green after N s: {VERDICT}; unstable on torch-2.11.0: one"),
    "the oldest torch is given its time": dict(
        torch="echo $*", shown=[r"--within 4[89]\d\d 2\.11\.0"], last=f"CI: green after N s: {VERDICT}"),
    "too little disk for the oldest torch": dict(
        df="printf 'Avail\\n 11000MB\\n'", torch="exit 1",
        last=f"CI: green after N s: {VERDICT}; scripts/torch_versions left out: 11000 MB of disk are free, "
             "12000 are needed"),
    "with arguments only the tests run": dict(
        options=["-R", "one"], test=PASSED + "; echo \"$@\"; cat build/ci/verdict", headers="exit 1", last=VERDICT,
        shown=[r"--landing --verdict \d+ -R one"]),
    "the disk is full": dict(
        df="printf 'Avail\\n 9999MB\\n 20000MB\\n'", code=1,
        last="CI: red after N s: 9999 MB of disk are free, 10000 are needed: the machine, not the change"),
    "a path with a blank": dict(
        folder="a b", code=1, last="CI: red after N s: the path 'PWD' has a blank, which slurm.conf does not allow"),
    "a signal ends a step whose output is in a file": dict(
        releases="sleep 1000 & wait", ends_after="$ scripts/releases trixie", code=1,
        last="CI: red after N s: ended by a signal"),
    "a signal ends it": dict(
        test="trap 'echo ended >ended; exit 1' TERM; echo started; sleep 1000 & wait", ends_after="started", code=1,
        made="ended", last="CI: red after N s: ended by a signal"),
}


def script(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n" + text + "\n")
    file.chmod(0o755)


def wrong_with(case, folder):
    """Yields what is not as expected."""
    top = folder / case.get("folder", "main")
    script(top / "scripts/test", case.get("test", PASSED))
    script(top / "scripts/slurm_headers", case.get("headers", ""))
    script(top / "scripts/releases", case.get("releases", ""))
    script(top / "scripts/torch_versions", case.get("torch", ""))
    script(folder / "bin/df", case.get("df", "printf 'Avail\\n 90000MB\\n'"))
    run = top / ".ci/run"
    script(run, "")
    run.write_bytes(RUN.read_bytes())
    git = ["git", "-C", top, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    process = subprocess.Popen(["bash", run, *case.get("options", [])], stdout=subprocess.PIPE, text=True,
                               env={"PATH": f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"})  # without HOME
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        print(line, end="")
        if lines[-1] == case.get("ends_after"):
            process.send_signal(signal.SIGTERM)
    code = process.wait()
    last = re.sub("(CI: \\w+|torch_versions left out) after [0-9]+ s", r"\1 after N s", lines[-1])
    last = last.replace(str(top), "PWD")
    if code != case.get("code", 0):
        yield f"exit code {code}"
    if last != case["last"]:
        yield f"its last line is '{last}', expected '{case['last']}'"
    for shown in case.get("shown", []):
        if not any(re.fullmatch(shown, line) for line in lines):
            yield f"it does not print '{shown}'"
    if case.get("made") and not (top / case["made"]).exists():
        yield f"'{case['made']}' is missing"
    if "unstable" in case:
        table = (top / "build/ci/unstable.tsv").read_text().splitlines()
        if [row.split("\t")[0] for row in table[1:]] != case["unstable"]:
            yield f"unstable.tsv has {table}"


run_table(CASES, wrong_with)
