"""A row of the table: a title, and the check that gives its figure and its verdict."""

import dataclasses
import functools
import subprocess
import threading
import typing


class Failed(Exception):
    """A check failed; the message is one line."""


@dataclasses.dataclass
class Row:
    """`find` returns (figure, verdict) or raises; verdict None: the figure is neither good nor bad. A timed row is a
    figure of speed: no other one runs beside it."""
    what: str
    find: typing.Callable
    timed: bool = False

    def result(self):
        """(figure, verdict); an error is a failed row, and the later checks still run."""
        try:
            return self.find()
        except Failed as error:
            return str(error), False
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError, subprocess.SubprocessError) as error:
            return f"{type(error).__name__}: {error}", False


def once(function):
    """Computes each value a single time, also where several rows ask for it at once."""
    cached, lock = functools.cache(function), threading.Lock()

    @functools.wraps(function)
    def locked(*arguments):
        with lock:
            return cached(*arguments)
    return locked
