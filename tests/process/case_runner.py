"""Runs the cases of a test: functions that raise Failure."""

import pathlib
import sys
import tempfile
import time


class Failure(Exception):
    """A check of a case."""


def check(fact, *what):
    if not fact:
        raise Failure(" ".join(map(str, what)))


def run_cases(cases, names, call=lambda case: case()):
    """Those of `names`, or all where it is empty. Exits with a message where one fails."""
    failed = []
    for case in cases:
        if names and case.__name__ not in names:
            continue
        print(f"--- {case.__name__}", flush=True)
        begin = time.monotonic()
        try:
            call(case)
        except Failure as failure:
            failed.append(case.__name__)
            print(f"FAILED: {case.__name__}: {failure}", flush=True)
        print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    sys.exit(f"{len(failed)} of {len(cases)} cases failed: {failed}" if failed else 0)


def run_table(table, wrong_with):
    """Cases by name: wrong_with(case, folder) yields what is not as expected; the folder is new and empty."""
    def function(name, case):
        def run():
            with tempfile.TemporaryDirectory() as folder:
                wrong = 0
                for fact in wrong_with(case, pathlib.Path(folder)):
                    print(f"FAILED: {name}: {fact}", flush=True)
                    wrong += 1
                check(wrong == 0, wrong, "facts")
        run.__name__ = name
        return run
    run_cases([function(name, case) for name, case in table.items()], [])
