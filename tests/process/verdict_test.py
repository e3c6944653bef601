#!/usr/bin/env python3
"""The verdict of .ci/verdict.py over small projects of CTest: which tests run again, and what is red.

    verdict_test.py VERDICT CMAKE      by ctest
"""

import os
import pathlib
import subprocess
import sys

from case_runner import run_table

VERDICT, CMAKE = sys.argv[1:]

# fails(N NAME [PROPERTY VALUE]...): a test that fails the first N times.
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(tests NONE)
enable_testing()
function(fails times name)
  add_test(NAME ${name} COMMAND sh -c
    "echo >>${name}.tries; tries=$(wc -l <${name}.tries); echo try $tries of ${name}; [ $tries -gt ${times} ]")
  if(ARGN)
    set_tests_properties(${name} PROPERTIES ${ARGN})
  endif()
endfunction()
function(skips name)
  add_test(NAME ${name} COMMAND sh -c "echo SKIPPED: why; exit 77")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
"""
FIXTURE = "fails(0 up FIXTURES_SETUP f)\nfails(0 down FIXTURES_CLEANUP f)\n"
ALWAYS = 99


def many(count, times):
    return "\n".join(f"fails({times} many.{at})" for at in range(count))


CASES = {
    "all pass": dict(
        tests="fails(0 one)\nskips(two)", code=0, verdict="tests: green: 1 of 2 passed, 1 skipped; no test failed",
        tries={"one": 1}),
    "a test that fails once is unstable": dict(
        tests="fails(1 a.b)\nfails(0 axb)", code=0, verdict="tests: green: 2 of 2 passed, 0 skipped; 1 unstable",
        unstable=["a.b"], tries={"axb": 1, "a.b": 2}),
    "a test that fails twice is unstable": dict(
        tests="fails(2 one)\nfails(1 two)", code=0, verdict="tests: green: 2 of 2 passed, 0 skipped; 2 unstable",
        unstable=["one", "two"], tries={"one": 3, "two": 2}),
    "a test that always fails is a regression": dict(
        tests=f"fails({ALWAYS} one)\nfails(1 two)", code=1,
        verdict="tests: red: 1 of 2 passed, 0 skipped; 1 regression: one", unstable=["two"],
        shown=["FAILED 3 of 3 times: one", "    try 3 of one"], tries={"one": 3, "two": 2}),
    "a program that is missing is a regression": dict(
        tests="add_test(NAME one COMMAND /none)", code=1,
        verdict="tests: red: 0 of 1 passed, 0 skipped; 1 regression: one"),
    "a test that runs into its time limit is a regression": dict(
        tests="add_test(NAME one COMMAND sleep 100)\nset_tests_properties(one PROPERTIES TIMEOUT 1)", code=1,
        verdict="tests: red: 0 of 1 passed, 0 skipped; 1 regression: one"),
    "a fixture that fails once takes its cases along": dict(
        tests="fails(1 up FIXTURES_SETUP f)\nfails(0 down FIXTURES_CLEANUP f)\nfails(0 one FIXTURES_REQUIRED f)\n"
              "fails(0 two)",
        code=0, verdict="tests: green: 4 of 4 passed, 0 skipped; 1 unstable", unstable=["up"],
        tries={"up": 2, "one": 1, "two": 1}),
    "a fixture that always fails is a regression": dict(
        tests=f"fails({ALWAYS} up FIXTURES_SETUP f)\nfails(0 one FIXTURES_REQUIRED f)", code=1,
        verdict="tests: red: 0 of 2 passed, 0 skipped; 2 regressions: up, one"),
    "a cleanup that fails runs again after its cases": dict(
        tests="fails(0 up FIXTURES_SETUP f)\nfails(1 down FIXTURES_CLEANUP f)\nfails(0 one FIXTURES_REQUIRED f)",
        code=0, verdict="tests: green: 3 of 3 passed, 0 skipped; 1 unstable", unstable=["down"],
        tries={"up": 2, "one": 2, "down": 2}),
    "twelve tests that failed run again, too many are unstable": dict(
        tests=many(12, 1), code=1, verdict="tests: red: 12 of 12 passed, 0 skipped; 12 unstable tests, more than 5",
        unstable=sorted(f"many.{at}" for at in range(12))),
    "thirteen tests that failed do not run again": dict(
        tests=many(13, 1), code=1,
        verdict="tests: red: 0 of 13 passed, 0 skipped; 13 tests failed, more than 12: none was run again",
        tries={f"many.{at}": 1 for at in range(13)}),
    "a test that fails and is then skipped is a regression": dict(
        tests="add_test(NAME one COMMAND sh -c \"[ -e was ] && exit 77; touch was; exit 1\")\n"
              "set_tests_properties(one PROPERTIES SKIP_RETURN_CODE 77)", code=1,
        verdict="tests: red: 0 of 1 passed, 0 skipped; 1 regression: one"),
    "too many skipped tests": dict(
        tests="\n".join(f"skips(many.{at})" for at in range(21)), code=1, shown=["skipped: many.20: why"],
        verdict="tests: red: 0 of 21 passed, 21 skipped; 21 skipped tests, more than 20"),
    "no test": dict(tests="", code=1, verdict="tests: red: 0 of 0 passed, 0 skipped; no test is selected"),
    "what runs again runs alone": dict(
        tests="\n".join(f'add_test(NAME many.{at} COMMAND sh -c "mkdir alone || exit 1; sleep 0.2; rmdir alone; '
                        f'[ -e was.{at} ] || {{ touch was.{at}; exit 1; }}")' for at in range(4)),
        environment={"CTEST_PARALLEL_LEVEL": "4"}, code=0, unstable=[f"many.{at}" for at in range(4)],
        verdict="tests: green: 4 of 4 passed, 0 skipped; 4 unstable"),
    "the end of a long output is shown": dict(
        tests="add_test(NAME one COMMAND sh -c \"seq 100000; echo why; exit 1\")", code=1, shown=["    why"],
        verdict="tests: red: 0 of 1 passed, 0 skipped; 1 regression: one"),
    # It has a process group of its own, as the cases on clusters.
    "the time for all tests ends them, then what a fixture has started": dict(
        tests="fails(0 up FIXTURES_SETUP f)\nfails(0 one)\nadd_test(NAME two COMMAND timeout 1000 sh -c "
              "\"trap 'sleep 1; echo >ended; exit' TERM; sleep 1000 & wait\")\nset_tests_properties(two PROPERTIES "
              "FIXTURES_REQUIRED f)\nadd_test(NAME down COMMAND sh -c \"[ -e ended ] && echo >down_after_two\")\n"
              "set_tests_properties(down PROPERTIES FIXTURES_CLEANUP f)",
        seconds=10, code=1, made="down_after_two", tries={"up": 1},
        verdict="tests: red: 0 of 4 passed, 0 skipped; the time for the tests is over while these run: two; "
                "4 have no result"),
    "a signal ends the tests and what a fixture has started": dict(
        tests=FIXTURE + "add_test(NAME one COMMAND bash -c [=[trap 'echo >ended; exit 1' TERM\n"
              "  read -ra stat </proc/$PPID/stat; kill ${stat[3]}; sleep 1000 & wait]=])\n"
              "set_tests_properties(one PROPERTIES FIXTURES_REQUIRED f)",
        code=1, made="ended", tries={"up": 1, "down": 1}, unstable=None,
        verdict="tests: red: no verdict: SystemExit: SIGTERM"),
}


def wrong_with(case, folder):
    """Yields what is not as expected."""
    (folder / "CMakeLists.txt").write_text(PROJECT + case["tests"])
    build, results = folder / "build", folder / "results"
    subprocess.run([CMAKE, "-G", "Ninja", "-S", folder, "-B", build], check=True, stdout=subprocess.DEVNULL)
    # Without this test's own options of ctest, and in its own folder.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CTEST_")}
    environment.update(case.get("environment", {}))
    command = [VERDICT, "--results", results, "--seconds", str(case.get("seconds", 60)), "--test-dir", build]
    done = subprocess.run([*command, "--", "--parallel", "2"], capture_output=True, text=True, env=environment)
    print(done.stdout, done.stderr, sep="")
    last = done.stdout.splitlines()[-1]
    if done.returncode != case["code"]:
        yield f"exit code {done.returncode}, expected {case['code']}"
    if last != case["verdict"] or (results / "verdict").read_text() != last + "\n":
        yield f"its last line is '{last}', expected '{case['verdict']}'"
    for line in case.get("shown", []):
        if line not in done.stdout.splitlines() and f"{line} " not in done.stdout.splitlines():
            yield f"it does not print '{line}'"
    if case.get("made") and not (build / case["made"]).exists():
        for file in [*results.glob("cleanup.log"), *results.glob("first.log")]:
            print(f"{file.name}:\n{file.read_text()}")
        yield f"'{case['made']}' is missing beside {sorted(file.name for file in build.iterdir())}"
    table = results / "unstable.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines()] if table.exists() else []
    unstable = case.get("unstable", [])
    if [row[0] for row in rows] != (["test", *unstable] if unstable is not None else []):
        yield f"unstable.tsv has {rows}"
    for row in rows[1:]:
        if not (int(row[1]) < int(row[2]) and float(row[3]) >= 0 and float(row[4]) >= 0 and float(row[5]) >= 0):
            yield f"unstable.tsv has {row}"
    for name, tries in case.get("tries", {}).items():
        found = len((build / f"{name}.tries").read_text().splitlines())
        if found != tries:
            yield f"{name} ran {found} times, expected {tries}"


run_table(CASES, wrong_with)
