#!/usr/bin/env python3
"""Runs CTest's tests, then those that failed once more, alone, and says what the result is worth.

    .ci/verdict.py --results FOLDER [--seconds N] CTEST_OPTION... [-- OPTIONS OF THE FIRST RUN ONLY...]

A test that never passes is a regression, one that fails first and then passes alone is unstable. Red (exit code 1):
a regression; more than MOST_RETRIED tests that failed at first, which are not run again; more than MOST_UNSTABLE
unstable ones or MOST_SKIPPED skipped ones; a test without a result; no test at all; an error of ctest itself. All else
is green (0), with each unstable test in a table: it is a fault to be mended by its cause. The last line is the verdict.

In FOLDER: the output and the JUnit file of each run (first, again-1, again-2), unstable.tsv, the verdict, and a line
of phases with the seconds. Where the time is over or a signal comes, it ends the tests and then what fixtures started.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml

MOST_RETRIED = 12
MOST_UNSTABLE = 5
MOST_SKIPPED = 20  # as without root, where no cluster runs
RETRIES = 2
LAST_LINES = 25  # of a regression's output
SLOWEST = 20
PERIOD_S = 0.2  # between two looks at the machine
GRACE_S = 30  # from SIGTERM to SIGKILL: tests end their clusters
CLEANUP_S = 25  # for the clusters of fixtures; with GRACE_S less than ENDING_S of .ci/run


@dataclasses.dataclass
class Outcome:
    state: str  # passed, failed, skipped, or blocked: a test whose fixture failed
    seconds: float = 0
    reason: str = ""
    output: str = ""


class Machine(threading.Thread):
    """Looks at the load average and for stalls until the process ends."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []  # (time, load average, seconds that the look came too late)
        self.start()

    def run(self):
        last = time.monotonic()
        while True:
            time.sleep(PERIOD_S)
            now = time.monotonic()
            self.seen.append((now, os.getloadavg()[0], now - last - PERIOD_S))
            last = now

    def worst_between(self, begin, end):
        """(load average, stall in seconds)"""
        seen = [one for one in self.seen if begin <= one[0] <= end + PERIOD_S] or self.seen[-1:]
        return max((load for _, load, _ in seen), default=0), max((stall for _, _, stall in seen), default=0)


class Runs:
    """Runs of ctest, by which each test has a list of outcomes."""

    def __init__(self, options, folder, deadline):
        self.options, self.folder, self.deadline = options, folder, deadline
        self.outcomes = {}  # by name
        self.first_run = {}  # by name: (begin, end), of time.monotonic()
        self.running = {}  # by name: when it began
        self.is_cut_off = False
        self.exit_code = 0  # of the last run of ctest
        self.session = None  # of the ctest that runs

    def run(self, run, options):
        """Prints what is not of a test that passed."""
        junit = self.folder / f"{run}.xml"
        junit.unlink(missing_ok=True)
        process = subprocess.Popen(["ctest", *self.options, *options, "--output-junit", str(junit),
                                    "--test-output-truncation", "head"],  # its end says why a test has failed
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        self.session = process.pid
        timer = threading.Timer(max(1, self.deadline - time.monotonic()), self.cut_off)
        timer.daemon = True
        timer.start()
        began = {}
        self.running.clear()
        with open(self.folder / f"{run}.log", "w") as log:
            for line in process.stdout:
                log.write(line)
                start = re.match(r" +Start +\d+: (\S+)", line)
                result = re.match(r" *\d+/\d+ Test +#\d+: (\S+) ", line)
                if start:
                    began[start[1]] = self.running[start[1]] = time.monotonic()
                elif not re.search(r" Passed +[\d.]+ sec", line):
                    print(line, end="", flush=True)
                if result:
                    self.running.pop(result[1], None)
        self.exit_code = process.wait()
        timer.cancel()
        if self.is_cut_off:
            timer.join()  # ctest ends at once, its tests later
        for name, outcome in outcomes_of(junit).items():
            self.outcomes.setdefault(name, []).append(outcome)
            begin = began.get(name, time.monotonic())
            self.first_run.setdefault(name, (begin, begin + outcome.seconds))

    def cut_off(self):
        """Ends ctest and its tests, which may be in process groups of their own."""
        self.is_cut_off = True
        if not self.session:
            return
        end_session(self.session)

    def clean_up(self, tests):
        """Runs the cleanups of fixtures, which CTest leaves out where it is ended."""
        names = [name for name, properties in tests.items() if "FIXTURES_CLEANUP" in properties]
        if not names:
            return
        with open(self.folder / "cleanup.log", "w") as log:
            process = subprocess.Popen(["ctest", *self.options, "--parallel", str(len(names)), "-R", exactly(names)],
                                       stdout=log, stderr=log, start_new_session=True)
        try:
            process.wait(CLEANUP_S)
        except subprocess.TimeoutExpired:
            print(f"no end within {CLEANUP_S} s: {', '.join(names)}")
            kill_session(process.pid)

    def in_state(self, state):
        return sorted(name for name, tries in self.outcomes.items() if state_of(tries) == state)

    def failed(self):
        return self.in_state("failed") + self.in_state("blocked")

    def unstable(self):
        return sorted(name for name, tries in self.outcomes.items()
                      if tries[-1].state == "passed" and any(one.state == "failed" for one in tries))


def state_of(tries):
    """A test that is skipped after it has failed has not passed."""
    last = tries[-1].state
    return "failed" if last == "skipped" and any(one.state == "failed" for one in tries) else last


def processes_of(session):
    """(process, process group, name) of each."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
            state, _, group, its_session = rest.split()[:4]
        except (OSError, ValueError):  # it has ended
            continue
        if int(its_session) == session and state != "Z":
            yield int(folder.name), int(group), name


def send(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def end_session(session):
    """Asks each test to end, also what it starts meanwhile, once: the second signal would stop the ending of a
    script. timeout(1) passes it on to the group that it leads."""
    if session in {process for process, _, _ in processes_of(session)}:
        send(session, signal.SIGSTOP)  # ctest starts no other test, and keeps the pipe into which tests print
    asked, begin = set(), time.monotonic()
    while (found := [one for one in processes_of(session) if one[0] != session]) and time.monotonic() < begin + GRACE_S:
        led = {process for process, _, name in found if name == "timeout"}
        for process, group, _ in found:
            if process not in asked and (process == group or group not in led):
                send(process, signal.SIGTERM)
                asked.add(process)
        time.sleep(PERIOD_S)
    kill_session(session)


def kill_session(session):
    end = time.monotonic() + 1
    while (found := [*processes_of(session)]) and time.monotonic() < end:
        for process, _, _ in found:
            send(process, signal.SIGKILL)
        time.sleep(PERIOD_S)


def outcomes_of(junit):
    """Empty where ctest was cut off before it wrote the file."""
    if not junit.exists():
        return {}
    found = {}
    for case in xml.parse(junit).getroot().iter("testcase"):
        skipped = case.find("skipped")
        reason = "" if skipped is None else skipped.get("message", "")
        state = {"run": "passed", "fail": "failed", "disabled": "skipped"}.get(case.get("status"))
        if state is None:  # notrun
            state = "skipped" if reason.startswith("SKIP_") else "blocked" if "Fixture" in reason else "failed"
        found[case.get("name")] = Outcome(state, float(case.get("time") or 0), reason,
                                          case.findtext("system-out") or "")
    return found


def declared(options):
    """The tests that these options of ctest select: {name: {property: value}}."""
    shown = subprocess.run(["ctest", *options, "--show-only=json-v1"], capture_output=True, text=True)
    try:
        tests = json.loads(shown.stdout[shown.stdout.index("{"):])["tests"]
    except ValueError:
        sys.exit(f"verdict: ctest {' '.join(options)}: {(shown.stderr or shown.stdout).strip()}")
    found = {test["name"]: {one["name"]: one["value"] for one in test.get("properties", [])} for test in tests}
    if len(found) < len(tests):
        sys.exit("verdict: two tests have one name")
    return found


def with_their_cases(names, tests):
    """A cleanup judges what the cases of its fixture have left behind: it is run again after all of them."""
    fixtures = {one for name in names for one in tests.get(name, {}).get("FIXTURES_CLEANUP", [])}
    return sorted({*names} | {name for name, properties in tests.items()
                              if fixtures & {*properties.get("FIXTURES_REQUIRED", [])}})


def exactly(names):
    return "^(" + "|".join(re.sub(r"([^\w/-])", r"\\\1", name) for name in names) + ")$"


def verdict_of(runs, tests, retried):
    """(whether it is green, the reason for the last line)"""
    failed, unstable, skipped = runs.failed(), runs.unstable(), runs.in_state("skipped")
    without_result = sorted({*tests} - {*runs.outcomes})
    if runs.is_cut_off:
        rest = f"; {len(without_result)} have no result" if without_result else ""
        return False, f"the time for the tests is over while these run: {', '.join(runs.running)}{rest}"
    if not tests:
        return False, "no test is selected"
    if without_result:
        return False, f"no result of {', '.join(without_result[:5])}" + (" ..." if len(without_result) > 5 else "")
    if failed and not retried:
        return False, f"{len(failed)} tests failed, more than {MOST_RETRIED}: none was run again"
    if failed:
        return False, f"{len(failed)} {'regression' if len(failed) == 1 else 'regressions'}: {', '.join(failed[:5])}"
    if len(unstable) > MOST_UNSTABLE:
        return False, f"{len(unstable)} unstable tests, more than {MOST_UNSTABLE}"
    if len(skipped) > MOST_SKIPPED:
        return False, f"{len(skipped)} skipped tests, more than {MOST_SKIPPED}"
    if runs.exit_code != 0:
        return False, f"ctest ended with exit code {runs.exit_code}, although no test failed"
    return True, f"{len(unstable)} unstable" if unstable else "no test failed"


def print_slowest(runs):
    print(f"\nThe {SLOWEST} slowest tests:")
    seconds = {name: tries[0].seconds for name, tries in runs.outcomes.items()}
    for name in sorted(seconds, key=seconds.get, reverse=True)[:SLOWEST]:
        print(f"{seconds[name]:7.1f} s  {name}")


def print_skipped(runs):
    for name in runs.in_state("skipped"):
        tries = runs.outcomes[name]
        # Of a script, or of GoogleTest: "FILE:LINE: Skipped" and the reason.
        reasons = re.findall(r"^SKIPPED:? *(.+)|: Skipped\n(.+)", tries[-1].output, re.MULTILINE)
        print(f"skipped: {name}: {''.join(reasons[-1]) if reasons else tries[-1].output.partition(chr(10))[0]}")


def print_regressions(runs):
    for name in runs.failed():
        last = runs.outcomes[name][-1]
        failures = sum(one.state != "passed" for one in runs.outcomes[name])
        print(f"\nFAILED {failures} of {len(runs.outcomes[name])} times: {name} {last.reason}")
        for line in last.output.rstrip().splitlines()[-LAST_LINES:]:
            print(f"    {line}")


def unstable_table(runs, machine):
    rows = [("test", "failed", "tries", "seconds", "load", "stall_s")]
    for name in runs.unstable():
        tries = runs.outcomes[name]
        load, stall = machine.worst_between(*runs.first_run[name])
        rows.append((name, sum(one.state == "failed" for one in tries), len(tries), f"{tries[0].seconds:.1f}",
                     f"{load:.1f}", f"{stall:.1f}"))
    return rows


def main():
    words = sys.argv[1:]
    first = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=5000)
    own, options = parser.parse_known_args(words[:words.index("--")] if "--" in words else words)
    folder = own.results.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    runs = Runs(options, folder, began + own.seconds)
    signal.signal(signal.SIGTERM, end)
    tests = {}
    try:
        tests = declared([*options, *first])
        green, line = judge(runs, tests, first)
    except BaseException as error:  # as of ctrl-C, or of a full disk
        ignore_signals()
        green, line = False, f"tests: red: no verdict: {type(error).__name__}: {error}"
        runs.cut_off()
    ignore_signals()
    if runs.is_cut_off:
        runs.clean_up(tests)
    print("\n" + line, flush=True)
    (folder / "verdict").write_text(line + "\n")
    with (folder / "phases").open("a") as phases:
        phases.write(f"tests {time.monotonic() - began:.0f}\n")
    sys.exit(0 if green else 1)


def end(*_):
    ignore_signals()  # timeout(1) sends two: to its child and to its group
    sys.exit("SIGTERM")


def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def judge(runs, tests, first):
    """(whether it is green, the verdict)"""
    machine = Machine()
    runs.run("first", first)
    print_slowest(runs)
    print_skipped(runs)

    retried = len(runs.in_state("failed")) <= MOST_RETRIED
    for again in range(1, RETRIES + 1):
        names = runs.failed()
        if not names or not retried or runs.is_cut_off:
            break
        print(f"\nOnce more, one after the other: {', '.join(names)}", flush=True)
        runs.run(f"again-{again}", ["--parallel", "1", "-R", exactly(with_their_cases(names, tests))])

    print_regressions(runs)
    table = unstable_table(runs, machine)
    (runs.folder / "unstable.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in table))
    if len(table) > 1:
        print("\nUnstable: failed, and passed when run alone. Load and stall are the worst while the test ran first.")
        widths = [max(len(str(row[at])) for row in table) for at in range(len(table[0]))]
        for row in table:
            print("  " + "  ".join(f"{str(cell):<{width}}" for cell, width in zip(row, widths)).rstrip())
    green, reason = verdict_of(runs, tests, retried)
    return green, (f"tests: {'green' if green else 'red'}: {len(runs.in_state('passed'))} of {len(tests)} passed, "
                   f"{len(runs.in_state('skipped'))} skipped; {reason}")


if __name__ == "__main__":
    main()
